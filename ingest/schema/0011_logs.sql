-- OTLP logs land as traces do; `otel_logs` has the OpenTelemetry Collector exporter's columns. A record without a time has the one
-- at which its collector saw it, else the one at which it was received.
CREATE TABLE otlp_logs (
  resource_logs Array(Tuple(
    resource Tuple(attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
    scope_logs Array(Tuple(
      scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
      log_records Array(Tuple(time_unix_nano UInt64, observed_time_unix_nano UInt64, severity_number UInt32, severity_text String, body Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))), attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32, trace_id String, span_id String, event_name String)),
      schema_url String)),
    schema_url String))
) ENGINE = Null;

CREATE TABLE otel_logs (
  Timestamp DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
  TraceId String CODEC(ZSTD(1)),
  SpanId String CODEC(ZSTD(1)),
  TraceFlags UInt8 CODEC(ZSTD(1)),
  SeverityText LowCardinality(String) CODEC(ZSTD(1)),
  SeverityNumber UInt8 CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  Body String CODEC(ZSTD(1)),
  ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion LowCardinality(String) CODEC(ZSTD(1)),
  ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  EventName String CODEC(ZSTD(1)),
  TimestampTime DateTime('UTC') ALIAS toDateTime(Timestamp, 'UTC') COMMENT 'as exporters before 0.151 had it',
  ReceivedAt DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
  INDEX idx_log_attr_key mapKeys(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_log_attr_value mapValues(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_body lower(Body) TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8,
  INDEX idx_received ReceivedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (toStartOfFiveMinutes(Timestamp), ServiceName, Timestamp)
SETTINGS non_replicated_deduplication_window = 100000;

CREATE MATERIALIZED VIEW otlp_logs_mv TO otel_logs AS
SELECT
  multiIf(r.time_unix_nano > 0, fromUnixTimestamp64Nano(toInt64(least(r.time_unix_nano, 9223372036854775807)), 'UTC'), r.observed_time_unix_nano > 0, fromUnixTimestamp64Nano(toInt64(least(r.observed_time_unix_nano, 9223372036854775807)), 'UTC'), now64(9, 'UTC')) AS Timestamp,
  lower(hex(r.trace_id)) AS TraceId,
  lower(hex(r.span_id)) AS SpanId,
  toUInt8(bitAnd(r.flags, 255)) AS TraceFlags,
  toValidUTF8(r.severity_text) AS SeverityText,
  toUInt8(bitAnd(r.severity_number, 255)) AS SeverityNumber,
  ResourceAttributes['service.name'] AS ServiceName,
  multiIf(r.body.value = 'string_value', toValidUTF8(r.body.string_value), r.body.value = 'int_value', toString(r.body.int_value), r.body.value = 'bool_value', if(r.body.bool_value, 'true', 'false'), r.body.value = 'double_value', toString(r.body.double_value), r.body.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), r.body.array_value.values), ','), ']'), '') AS Body,
  ResourceSchemaUrl, ResourceAttributes, ScopeSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), r.attributes), 'Map(LowCardinality(String), String)') AS LogAttributes,
  toValidUTF8(r.event_name) AS EventName
FROM (
  SELECT ResourceAttributes, ResourceSchemaUrl, toValidUTF8(sl.schema_url) AS ScopeSchemaUrl, toValidUTF8(sl.scope.name) AS ScopeName,
    toValidUTF8(sl.scope.version) AS ScopeVersion, CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), sl.scope.attributes), 'Map(LowCardinality(String), String)') AS ScopeAttributes,
    arrayJoin(sl.log_records) AS r
  FROM (
    SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rl.resource.attributes), 'Map(LowCardinality(String), String)') AS ResourceAttributes,
      toValidUTF8(rl.schema_url) AS ResourceSchemaUrl, arrayJoin(rl.scope_logs) AS sl
    FROM (SELECT arrayJoin(resource_logs) AS rl FROM otlp_logs)));

-- What clients had to drop, as for traces and metrics.
CREATE TABLE otlp_logs_own AS otlp_logs ENGINE = Null;

CREATE MATERIALIZED VIEW otlp_logs_own_mv TO otlp_logs_own AS
SELECT resource_logs FROM otlp_logs
WHERE has(arrayFlatten(resource_logs.scope_logs.scope.attributes.key), 'tailtrace.dropped');

CREATE MATERIALIZED VIEW client_losses_logs_mv TO client_losses AS
SELECT toDateTime64(toStartOfMinute(now64(3, 'UTC')), 0, 'UTC') AS Minute, Service, Instance, Signal, Reason, max(Count) AS Dropped
FROM (
  SELECT 'logs' AS Signal, Service, Instance, toValidUTF8(replaceRegexpOne(Entry, ':[0-9]*$', '')) AS Reason, toUInt64OrZero(extract(Entry, ':([0-9]*)$')) AS Count
  FROM (
    SELECT toValidUTF8(arrayFirst(a -> a.key = 'service.name', Resource).value.string_value) AS Service,
      toValidUTF8(arrayFirst(a -> a.key = 'service.instance.id', Resource).value.string_value) AS Instance,
      arrayJoin(splitByChar(',', arrayFirst(a -> a.key = 'tailtrace.dropped', Scope).value.string_value)) AS Entry
    FROM (
      SELECT Pair.1 AS Resource, arrayJoin(Pair.2) AS Scope
      FROM (
        SELECT arrayJoin(arrayZip(resource_logs.resource.attributes, resource_logs.scope_logs.scope.attributes)) AS Pair FROM otlp_logs_own
        WHERE has(arrayFlatten(resource_logs.scope_logs.scope.attributes.key), 'tailtrace.dropped')))))
WHERE Count > 0
GROUP BY Minute, Service, Instance, Signal, Reason;
