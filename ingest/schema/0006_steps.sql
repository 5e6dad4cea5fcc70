-- Bodies that hold steps or a client's losses. Every view on a landing table costs each insert the time to plan it, so the views
-- that few bodies need hang on a table of their own, behind one cheap filter.
CREATE TABLE otlp_traces_own AS otlp_traces ENGINE = Null;

CREATE MATERIALIZED VIEW otlp_traces_own_mv TO otlp_traces_own AS
SELECT resource_spans FROM otlp_traces
WHERE has(arrayFlatten(resource_spans.scope_spans.scope.name), 'tailtrace.steps')
  OR has(arrayFlatten(resource_spans.scope_spans.scope.attributes.key), 'tailtrace.dropped');

-- One row per engine step, made from the spans of scope `tailtrace.steps`, which are kept out of otel_traces.
-- NULL means that the engine did not say. Requests join steps by engine and time.
CREATE TABLE engine_steps (
  Time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
  DurationNs UInt64 CODEC(ZSTD(1)),
  EngineId LowCardinality(String) COMMENT 'host.id/pid/dp_rank of the scheduler',
  Service LowCardinality(String),
  Replica LowCardinality(String) COMMENT 'service.instance.id',
  HostId LowCardinality(String),
  Model LowCardinality(String),
  Running Nullable(UInt32) CODEC(ZSTD(1)),
  Waiting Nullable(UInt32) CODEC(ZSTD(1)),
  WaitingCapacity Nullable(UInt32) CODEC(ZSTD(1)),
  WaitingDeferred Nullable(UInt32) CODEC(ZSTD(1)),
  PrefillTokens Nullable(UInt32) CODEC(ZSTD(1)),
  DecodeTokens Nullable(UInt32) CODEC(ZSTD(1)),
  PrefillRequests Array(String) COMMENT 'requests prefilled in this step, and below their tokens in it' CODEC(ZSTD(1)),
  PrefillRequestTokens Array(UInt32) CODEC(ZSTD(1)),
  Preempted Array(String) COMMENT 'requests preempted in this step' CODEC(ZSTD(1)),
  KvUsage Nullable(Float32) CODEC(ZSTD(1)),
  GpuNs Nullable(UInt64) CODEC(ZSTD(1)),
  GpuUuids LowCardinality(String),
  Simulated Bool,
  Attributes Map(LowCardinality(String), String) COMMENT 'whatever else the span holds' CODEC(ZSTD(1)),
  ReceivedAt DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
  INDEX idx_received ReceivedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Time)
ORDER BY (EngineId, Time)
SETTINGS non_replicated_deduplication_window = 100000;

CREATE MATERIALIZED VIEW engine_steps_mv TO engine_steps AS
SELECT
  fromUnixTimestamp64Nano(toInt64(least(s.start_time_unix_nano, 9223372036854775807)), 'UTC') AS Time,
  if(s.end_time_unix_nano > s.start_time_unix_nano, least(s.end_time_unix_nano, 9223372036854775807) - least(s.start_time_unix_nano, 9223372036854775807), 0) AS DurationNs,
  if(Given['tailtrace.engine_id'] != '', Given['tailtrace.engine_id'], Resource['tailtrace.engine_id']) AS EngineId,
  Resource['service.name'] AS Service,
  Resource['service.instance.id'] AS Replica,
  Resource['host.id'] AS HostId,
  Resource['tailtrace.model'] AS Model,
  toUInt32OrNull(Given['tailtrace.running']) AS Running,
  toUInt32OrNull(Given['tailtrace.waiting']) AS Waiting,
  toUInt32OrNull(Given['tailtrace.waiting_capacity']) AS WaitingCapacity,
  toUInt32OrNull(Given['tailtrace.waiting_deferred']) AS WaitingDeferred,
  toUInt32OrNull(Given['tailtrace.prefill_tokens']) AS PrefillTokens,
  toUInt32OrNull(Given['tailtrace.decode_tokens']) AS DecodeTokens,
  arrayMap(x -> replaceRegexpOne(x, ':[0-9]*$', ''), Prefill) AS PrefillRequests,
  arrayMap(x -> toUInt32OrZero(extract(x, ':([0-9]*)$')), Prefill) AS PrefillRequestTokens,
  arrayFilter(x -> x != '', splitByChar(',', Given['tailtrace.preempted'])) AS Preempted,
  toFloat32OrNull(Given['tailtrace.kv_usage']) AS KvUsage,
  toUInt64OrNull(Given['tailtrace.gpu_ns']) AS GpuNs,
  Resource['tailtrace.gpu_uuids'] AS GpuUuids,
  Resource['tailtrace.simulated'] = 'true' AS Simulated,
  mapFilter((k, v) -> NOT has(['tailtrace.engine_id', 'tailtrace.running', 'tailtrace.waiting', 'tailtrace.waiting_capacity', 'tailtrace.waiting_deferred', 'tailtrace.prefill_tokens', 'tailtrace.decode_tokens', 'tailtrace.prefill', 'tailtrace.preempted', 'tailtrace.kv_usage', 'tailtrace.gpu_ns'], k), Given) AS Attributes
FROM (
  SELECT Resource, s, CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), s.attributes), 'Map(LowCardinality(String), String)') AS Given, arrayFilter(x -> x != '', splitByChar(',', Given['tailtrace.prefill'])) AS Prefill
  FROM (
    SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rs.resource.attributes), 'Map(LowCardinality(String), String)') AS Resource, arrayJoin(arrayFlatten(arrayMap(x -> x.spans, arrayFilter(x -> x.scope.name = 'tailtrace.steps', rs.scope_spans)))) AS s
    FROM (
      SELECT arrayJoin(resource_spans) AS rs FROM otlp_traces_own)));
