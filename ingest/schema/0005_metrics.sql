-- OTLP metrics land as traces do: a table that stores nothing, and one view per kind of metric.
-- A further kind is its field in the landing type and otlp_metrics.proto, a table, and a view like those below.
CREATE TABLE otlp_metrics (
  resource_metrics Array(Tuple(
    resource Tuple(attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
    scope_metrics Array(Tuple(
      scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
      metrics Array(Tuple(
        name String, description String, unit String,
        gauge Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 4, 'as_int' = 6), as_double Float64, as_int Int64, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32))),
        sum Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 4, 'as_int' = 6), as_double Float64, as_int Int64, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32)), aggregation_temporality Int32, is_monotonic Bool)))))))
) ENGINE = Null;

CREATE TABLE otel_metrics_gauge (
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ResourceSchemaUrl String CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion String CODEC(ZSTD(1)),
  ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
  ScopeSchemaUrl String CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  MetricName LowCardinality(String) CODEC(ZSTD(1)),
  MetricDescription LowCardinality(String) CODEC(ZSTD(1)),
  MetricUnit LowCardinality(String) CODEC(ZSTD(1)),
  Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  StartTimeUnix DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
  TimeUnix DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
  Value Float64 CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1)),
  Exemplars Nested(FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9, 'UTC'), Value Float64, SpanId String, TraceId String) CODEC(ZSTD(1)),
  ReceivedAt DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
  INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_received ReceivedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
SETTINGS non_replicated_deduplication_window = 100000;

CREATE MATERIALIZED VIEW otlp_metrics_gauge_mv TO otel_metrics_gauge AS
SELECT
  ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes,
  ResourceAttributes['service.name'] AS ServiceName,
  MetricName, MetricDescription, MetricUnit,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), p.attributes), 'Map(LowCardinality(String), String)') AS Attributes,
  fromUnixTimestamp64Nano(toInt64(least(p.start_time_unix_nano, 9223372036854775807)), 'UTC') AS StartTimeUnix,
  fromUnixTimestamp64Nano(toInt64(least(p.time_unix_nano, 9223372036854775807)), 'UTC') AS TimeUnix,
  if(p.value = 'as_int', toFloat64(p.as_int), p.as_double) AS Value,
  p.flags AS Flags
FROM (
  SELECT ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes, toValidUTF8(m.name) AS MetricName, toValidUTF8(m.description) AS MetricDescription,
    toValidUTF8(m.unit) AS MetricUnit, m.sum.aggregation_temporality AS Temporality, m.sum.is_monotonic AS Monotonic, arrayJoin(m.gauge.data_points) AS p
  FROM (
    SELECT ResourceAttributes, toValidUTF8(sm.scope.name) AS ScopeName, toValidUTF8(sm.scope.version) AS ScopeVersion,
      CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), sm.scope.attributes), 'Map(LowCardinality(String), String)') AS ScopeAttributes, arrayJoin(sm.metrics) AS m
    FROM (
      SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rm.resource.attributes), 'Map(LowCardinality(String), String)') AS ResourceAttributes, arrayJoin(rm.scope_metrics) AS sm
      FROM (SELECT arrayJoin(resource_metrics) AS rm FROM otlp_metrics))))
WHERE p.value != '';

CREATE TABLE otel_metrics_sum (
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ResourceSchemaUrl String CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion String CODEC(ZSTD(1)),
  ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
  ScopeSchemaUrl String CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  MetricName LowCardinality(String) CODEC(ZSTD(1)),
  MetricDescription LowCardinality(String) CODEC(ZSTD(1)),
  MetricUnit LowCardinality(String) CODEC(ZSTD(1)),
  Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  StartTimeUnix DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
  TimeUnix DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
  Value Float64 CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1)),
  Exemplars Nested(FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9, 'UTC'), Value Float64, SpanId String, TraceId String) CODEC(ZSTD(1)),
  AggregationTemporality Int32 CODEC(ZSTD(1)),
  IsMonotonic Bool CODEC(Delta, ZSTD(1)),
  ReceivedAt DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
  INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_received ReceivedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
SETTINGS non_replicated_deduplication_window = 100000;

CREATE MATERIALIZED VIEW otlp_metrics_sum_mv TO otel_metrics_sum AS
SELECT
  ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes,
  ResourceAttributes['service.name'] AS ServiceName,
  MetricName, MetricDescription, MetricUnit,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), p.attributes), 'Map(LowCardinality(String), String)') AS Attributes,
  fromUnixTimestamp64Nano(toInt64(least(p.start_time_unix_nano, 9223372036854775807)), 'UTC') AS StartTimeUnix,
  fromUnixTimestamp64Nano(toInt64(least(p.time_unix_nano, 9223372036854775807)), 'UTC') AS TimeUnix,
  if(p.value = 'as_int', toFloat64(p.as_int), p.as_double) AS Value,
  p.flags AS Flags,
  Temporality AS AggregationTemporality,
  Monotonic AS IsMonotonic
FROM (
  SELECT ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes, toValidUTF8(m.name) AS MetricName, toValidUTF8(m.description) AS MetricDescription,
    toValidUTF8(m.unit) AS MetricUnit, m.sum.aggregation_temporality AS Temporality, m.sum.is_monotonic AS Monotonic, arrayJoin(m.sum.data_points) AS p
  FROM (
    SELECT ResourceAttributes, toValidUTF8(sm.scope.name) AS ScopeName, toValidUTF8(sm.scope.version) AS ScopeVersion,
      CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), sm.scope.attributes), 'Map(LowCardinality(String), String)') AS ScopeAttributes, arrayJoin(sm.metrics) AS m
    FROM (
      SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rm.resource.attributes), 'Map(LowCardinality(String), String)') AS ResourceAttributes, arrayJoin(rm.scope_metrics) AS sm
      FROM (SELECT arrayJoin(resource_metrics) AS rm FROM otlp_metrics))))
WHERE p.value != '';
