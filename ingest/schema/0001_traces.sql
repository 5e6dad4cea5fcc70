-- OTLP bodies are decoded by the engine: a landing table that stores nothing, and a view that flattens resource, scope and span.
CREATE TABLE otlp_traces (
  resource_spans Array(Tuple(
    resource Tuple(attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
    scope_spans Array(Tuple(
      scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
      spans Array(Tuple(
        trace_id String, span_id String, trace_state String, parent_span_id String, name String, kind UInt32,
        start_time_unix_nano UInt64, end_time_unix_nano UInt64, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))),
        events Array(Tuple(time_unix_nano UInt64, name String, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))))),
        links Array(Tuple(trace_id String, span_id String, trace_state String, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))))),
        status Tuple(message String, code UInt32)))))))
) ENGINE = Null;

-- The OpenTelemetry Collector's ClickHouse exporter uses these names and types; the sort order and the last columns are ours.
CREATE TABLE otel_traces (
  Timestamp DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
  TraceId String CODEC(ZSTD(1)),
  SpanId String CODEC(ZSTD(1)),
  ParentSpanId String CODEC(ZSTD(1)),
  TraceState String CODEC(ZSTD(1)),
  SpanName LowCardinality(String) CODEC(ZSTD(1)),
  SpanKind LowCardinality(String) CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion String CODEC(ZSTD(1)),
  SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  Duration UInt64 CODEC(ZSTD(1)),
  StatusCode LowCardinality(String) CODEC(ZSTD(1)),
  StatusMessage String CODEC(ZSTD(1)),
  Events Nested(Timestamp DateTime64(9, 'UTC'), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
  Links Nested(TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
  ReceivedAt DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
  Stage LowCardinality(String) MATERIALIZED SpanAttributes['tailtrace.stage'],
  ClockFault Bool DEFAULT toBool(Duration > 9223372036854775807) COMMENT 'the span ended before it began; a negative duration wrapped by its writer counts too',
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
  INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_duration Duration TYPE minmax GRANULARITY 1,
  INDEX idx_received ReceivedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (toStartOfMinute(Timestamp), TraceId, Timestamp)
SETTINGS non_replicated_deduplication_window = 100000;

CREATE MATERIALIZED VIEW otlp_traces_mv TO otel_traces AS
SELECT
  fromUnixTimestamp64Nano(toInt64(least(s.start_time_unix_nano, 9223372036854775807)), 'UTC') AS Timestamp,
  lower(hex(s.trace_id)) AS TraceId,
  lower(hex(s.span_id)) AS SpanId,
  lower(hex(s.parent_span_id)) AS ParentSpanId,
  toValidUTF8(s.trace_state) AS TraceState,
  toValidUTF8(s.name) AS SpanName,
  transform(s.kind, [1, 2, 3, 4, 5], ['Internal', 'Server', 'Client', 'Producer', 'Consumer'], 'Unspecified') AS SpanKind,
  ResourceAttributes['service.name'] AS ServiceName,
  ResourceAttributes, ScopeName, ScopeVersion,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), s.attributes), 'Map(LowCardinality(String), String)') AS SpanAttributes,
  if(s.end_time_unix_nano > s.start_time_unix_nano, least(s.end_time_unix_nano, 9223372036854775807) - least(s.start_time_unix_nano, 9223372036854775807), 0) AS Duration,
  s.end_time_unix_nano < s.start_time_unix_nano AS ClockFault,
  transform(s.status.code, [1, 2], ['Ok', 'Error'], 'Unset') AS StatusCode,
  toValidUTF8(s.status.message) AS StatusMessage,
  arrayMap(e -> fromUnixTimestamp64Nano(toInt64(least(e.time_unix_nano, 9223372036854775807)), 'UTC'), s.events) AS `Events.Timestamp`,
  arrayMap(e -> toValidUTF8(e.name), s.events) AS `Events.Name`,
  arrayMap(e -> CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), e.attributes), 'Map(LowCardinality(String), String)'), s.events) AS `Events.Attributes`,
  arrayMap(l -> lower(hex(l.trace_id)), s.links) AS `Links.TraceId`,
  arrayMap(l -> lower(hex(l.span_id)), s.links) AS `Links.SpanId`,
  arrayMap(l -> toValidUTF8(l.trace_state), s.links) AS `Links.TraceState`,
  arrayMap(l -> CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), l.attributes), 'Map(LowCardinality(String), String)'), s.links) AS `Links.Attributes`
FROM (
  SELECT ResourceAttributes, toValidUTF8(ss.scope.name) AS ScopeName, toValidUTF8(ss.scope.version) AS ScopeVersion, arrayJoin(ss.spans) AS s
  FROM (
    SELECT ResourceAttributes, arrayJoin(scopes) AS ss
    FROM (SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rs.resource.attributes), 'Map(LowCardinality(String), String)') AS ResourceAttributes, rs.scope_spans AS scopes FROM (SELECT arrayJoin(resource_spans) AS rs FROM otlp_traces))))
WHERE ScopeName != 'tailtrace.steps';

-- Time bounds of a trace. Several rows per trace until merged; End is the true end (start + duration), unlike the exporter's.
-- No duration makes it fail: a wrapped one counts as none, and the sum stops at the last time that the type can hold.
CREATE TABLE otel_traces_trace_id_ts (
  TraceId String CODEC(ZSTD(1)),
  Start SimpleAggregateFunction(min, DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)),
  End SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(Delta, ZSTD(1)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = AggregatingMergeTree
PARTITION BY toStartOfWeek(Start)
ORDER BY TraceId
SETTINGS non_replicated_deduplication_window = 100000;

CREATE MATERIALIZED VIEW otel_traces_trace_id_ts_mv TO otel_traces_trace_id_ts AS
SELECT TraceId, min(Timestamp) AS Start,
  max(fromUnixTimestamp64Nano(toUnixTimestamp64Nano(Timestamp) + toInt64(if(Duration > 9223372036854775807, 0,
    least(Duration, toUInt64(9223372036854775807 - greatest(toUnixTimestamp64Nano(Timestamp), 0))))), 'UTC')) AS End
FROM otel_traces WHERE TraceId != '' GROUP BY TraceId;
