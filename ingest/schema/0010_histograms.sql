-- Histograms, exponential histograms, summaries and exemplars. Nothing is stored in the landing tables, so they change in place;
-- tables and columns are the OpenTelemetry Collector exporter's. Most bodies hold gauges and sums alone: the views of the other
-- kinds hang on a table of their own, behind one cheap filter.
ALTER TABLE otlp_metrics MODIFY COLUMN resource_metrics Array(Tuple(
    resource Tuple(attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
    scope_metrics Array(Tuple(
      scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
      metrics Array(Tuple(
        name String, description String, unit String,
        gauge Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 4, 'as_int' = 6), as_double Float64, as_int Int64, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32, exemplars Array(Tuple(time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 3, 'as_int' = 6), as_double Float64, as_int Int64, span_id String, trace_id String, filtered_attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))))))),
        sum Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 4, 'as_int' = 6), as_double Float64, as_int Int64, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32, exemplars Array(Tuple(time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 3, 'as_int' = 6), as_double Float64, as_int Int64, span_id String, trace_id String, filtered_attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))))))), aggregation_temporality Int32, is_monotonic Bool),
        histogram Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64, sum Float64, bucket_counts Array(UInt64), explicit_bounds Array(Float64), exemplars Array(Tuple(time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 3, 'as_int' = 6), as_double Float64, as_int Int64, span_id String, trace_id String, filtered_attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))))), attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32, min Float64, max Float64)), aggregation_temporality Int32),
        exponential_histogram Tuple(data_points Array(Tuple(attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64, sum Float64, scale Int32, zero_count UInt64, positive Tuple(offset Int32, bucket_counts Array(UInt64)), negative Tuple(offset Int32, bucket_counts Array(UInt64)), flags UInt32, exemplars Array(Tuple(time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 3, 'as_int' = 6), as_double Float64, as_int Int64, span_id String, trace_id String, filtered_attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))))), min Float64, max Float64, zero_threshold Float64)), aggregation_temporality Int32),
        summary Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64, sum Float64, quantile_values Array(Tuple(quantile Float64, value Float64)), attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32)))))))));

ALTER TABLE otlp_metrics_own MODIFY COLUMN resource_metrics Array(Tuple(
    resource Tuple(attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
    scope_metrics Array(Tuple(
      scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))),
      metrics Array(Tuple(
        name String, description String, unit String,
        gauge Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 4, 'as_int' = 6), as_double Float64, as_int Int64, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32, exemplars Array(Tuple(time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 3, 'as_int' = 6), as_double Float64, as_int Int64, span_id String, trace_id String, filtered_attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64))))))))))),
        sum Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 4, 'as_int' = 6), as_double Float64, as_int Int64, attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32, exemplars Array(Tuple(time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 3, 'as_int' = 6), as_double Float64, as_int Int64, span_id String, trace_id String, filtered_attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))))))), aggregation_temporality Int32, is_monotonic Bool),
        histogram Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64, sum Float64, bucket_counts Array(UInt64), explicit_bounds Array(Float64), exemplars Array(Tuple(time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 3, 'as_int' = 6), as_double Float64, as_int Int64, span_id String, trace_id String, filtered_attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))))), attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32, min Float64, max Float64)), aggregation_temporality Int32),
        exponential_histogram Tuple(data_points Array(Tuple(attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64, sum Float64, scale Int32, zero_count UInt64, positive Tuple(offset Int32, bucket_counts Array(UInt64)), negative Tuple(offset Int32, bucket_counts Array(UInt64)), flags UInt32, exemplars Array(Tuple(time_unix_nano UInt64, value Enum8('' = 0, 'as_double' = 3, 'as_int' = 6), as_double Float64, as_int Int64, span_id String, trace_id String, filtered_attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))))), min Float64, max Float64, zero_threshold Float64)), aggregation_temporality Int32),
        summary Tuple(data_points Array(Tuple(start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64, sum Float64, quantile_values Array(Tuple(quantile Float64, value Float64)), attributes Array(Tuple(key String, value Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4, 'array_value' = 5), string_value String, bool_value Bool, int_value Int64, double_value Float64, array_value Tuple(values Array(Tuple(value Enum8('' = 0, 'string_value' = 1, 'bool_value' = 2, 'int_value' = 3, 'double_value' = 4), string_value String, bool_value Bool, int_value Int64, double_value Float64)))))), flags UInt32)))))))));

CREATE TABLE otel_metrics_histogram (
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
  Count UInt64 CODEC(Delta, ZSTD(1)),
  Sum Float64 CODEC(ZSTD(1)),
  BucketCounts Array(UInt64) CODEC(ZSTD(1)),
  ExplicitBounds Array(Float64) CODEC(ZSTD(1)),
  Exemplars Nested(FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9, 'UTC'), Value Float64, SpanId String, TraceId String) CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1)),
  Min Float64 CODEC(ZSTD(1)),
  Max Float64 CODEC(ZSTD(1)),
  AggregationTemporality Int32 CODEC(ZSTD(1)),
  ReceivedAt DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
  INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_received ReceivedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
SETTINGS non_replicated_deduplication_window = 100000;

CREATE TABLE otel_metrics_exp_histogram (
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
  Count UInt64 CODEC(Delta, ZSTD(1)),
  Sum Float64 CODEC(ZSTD(1)),
  Scale Int32 CODEC(ZSTD(1)),
  ZeroCount UInt64 CODEC(ZSTD(1)),
  PositiveOffset Int32 CODEC(ZSTD(1)),
  PositiveBucketCounts Array(UInt64) CODEC(ZSTD(1)),
  NegativeOffset Int32 CODEC(ZSTD(1)),
  NegativeBucketCounts Array(UInt64) CODEC(ZSTD(1)),
  Exemplars Nested(FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9, 'UTC'), Value Float64, SpanId String, TraceId String) CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1)),
  Min Float64 CODEC(ZSTD(1)),
  Max Float64 CODEC(ZSTD(1)),
  AggregationTemporality Int32 CODEC(ZSTD(1)),
  ReceivedAt DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
  INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_received ReceivedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
SETTINGS non_replicated_deduplication_window = 100000;

CREATE TABLE otel_metrics_summary (
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
  Count UInt64 CODEC(Delta, ZSTD(1)),
  Sum Float64 CODEC(ZSTD(1)),
  ValueAtQuantiles Nested(Quantile Float64, Value Float64) CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1)),
  ReceivedAt DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
  INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_received ReceivedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
SETTINGS non_replicated_deduplication_window = 100000;

CREATE TABLE otlp_metrics_rare AS otlp_metrics ENGINE = Null;

CREATE MATERIALIZED VIEW otlp_metrics_rare_mv TO otlp_metrics_rare AS
SELECT resource_metrics FROM otlp_metrics
WHERE notEmpty(arrayFlatten(resource_metrics.scope_metrics.metrics.histogram.data_points)) OR notEmpty(arrayFlatten(resource_metrics.scope_metrics.metrics.exponential_histogram.data_points)) OR notEmpty(arrayFlatten(resource_metrics.scope_metrics.metrics.summary.data_points));

CREATE MATERIALIZED VIEW otlp_metrics_histogram_mv TO otel_metrics_histogram AS
SELECT
  ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes,
  ResourceAttributes['service.name'] AS ServiceName,
  MetricName, MetricDescription, MetricUnit,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), p.attributes), 'Map(LowCardinality(String), String)') AS Attributes,
  fromUnixTimestamp64Nano(toInt64(least(p.start_time_unix_nano, 9223372036854775807)), 'UTC') AS StartTimeUnix,
  fromUnixTimestamp64Nano(toInt64(least(p.time_unix_nano, 9223372036854775807)), 'UTC') AS TimeUnix,
  p.count AS Count, p.sum AS Sum, p.bucket_counts AS BucketCounts, p.explicit_bounds AS ExplicitBounds, p.min AS Min, p.max AS Max, Temporality AS AggregationTemporality,
  p.flags AS Flags,
  arrayMap(x -> CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), x.filtered_attributes), 'Map(LowCardinality(String), String)'), p.exemplars) AS `Exemplars.FilteredAttributes`,
  arrayMap(x -> fromUnixTimestamp64Nano(toInt64(least(x.time_unix_nano, 9223372036854775807)), 'UTC'), p.exemplars) AS `Exemplars.TimeUnix`,
  arrayMap(x -> if(x.value = 'as_int', toFloat64(x.as_int), x.as_double), p.exemplars) AS `Exemplars.Value`,
  arrayMap(x -> lower(hex(x.span_id)), p.exemplars) AS `Exemplars.SpanId`,
  arrayMap(x -> lower(hex(x.trace_id)), p.exemplars) AS `Exemplars.TraceId`
FROM (
  SELECT ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes, toValidUTF8(m.name) AS MetricName, toValidUTF8(m.description) AS MetricDescription,
    toValidUTF8(m.unit) AS MetricUnit, m.histogram.aggregation_temporality AS Temporality, arrayJoin(m.histogram.data_points) AS p
  FROM (
    SELECT ResourceAttributes, toValidUTF8(sm.scope.name) AS ScopeName, toValidUTF8(sm.scope.version) AS ScopeVersion,
      CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), sm.scope.attributes), 'Map(LowCardinality(String), String)') AS ScopeAttributes, arrayJoin(sm.metrics) AS m
    FROM (
      SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rm.resource.attributes), 'Map(LowCardinality(String), String)') AS ResourceAttributes, arrayJoin(rm.scope_metrics) AS sm
      FROM (SELECT arrayJoin(resource_metrics) AS rm FROM otlp_metrics_rare))));

CREATE MATERIALIZED VIEW otlp_metrics_exp_histogram_mv TO otel_metrics_exp_histogram AS
SELECT
  ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes,
  ResourceAttributes['service.name'] AS ServiceName,
  MetricName, MetricDescription, MetricUnit,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), p.attributes), 'Map(LowCardinality(String), String)') AS Attributes,
  fromUnixTimestamp64Nano(toInt64(least(p.start_time_unix_nano, 9223372036854775807)), 'UTC') AS StartTimeUnix,
  fromUnixTimestamp64Nano(toInt64(least(p.time_unix_nano, 9223372036854775807)), 'UTC') AS TimeUnix,
  p.count AS Count, p.sum AS Sum, p.scale AS Scale, p.zero_count AS ZeroCount, p.positive.offset AS PositiveOffset, p.positive.bucket_counts AS PositiveBucketCounts,
  p.negative.offset AS NegativeOffset, p.negative.bucket_counts AS NegativeBucketCounts, p.min AS Min, p.max AS Max, Temporality AS AggregationTemporality,
  p.flags AS Flags,
  arrayMap(x -> CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), x.filtered_attributes), 'Map(LowCardinality(String), String)'), p.exemplars) AS `Exemplars.FilteredAttributes`,
  arrayMap(x -> fromUnixTimestamp64Nano(toInt64(least(x.time_unix_nano, 9223372036854775807)), 'UTC'), p.exemplars) AS `Exemplars.TimeUnix`,
  arrayMap(x -> if(x.value = 'as_int', toFloat64(x.as_int), x.as_double), p.exemplars) AS `Exemplars.Value`,
  arrayMap(x -> lower(hex(x.span_id)), p.exemplars) AS `Exemplars.SpanId`,
  arrayMap(x -> lower(hex(x.trace_id)), p.exemplars) AS `Exemplars.TraceId`
FROM (
  SELECT ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes, toValidUTF8(m.name) AS MetricName, toValidUTF8(m.description) AS MetricDescription,
    toValidUTF8(m.unit) AS MetricUnit, m.exponential_histogram.aggregation_temporality AS Temporality, arrayJoin(m.exponential_histogram.data_points) AS p
  FROM (
    SELECT ResourceAttributes, toValidUTF8(sm.scope.name) AS ScopeName, toValidUTF8(sm.scope.version) AS ScopeVersion,
      CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), sm.scope.attributes), 'Map(LowCardinality(String), String)') AS ScopeAttributes, arrayJoin(sm.metrics) AS m
    FROM (
      SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rm.resource.attributes), 'Map(LowCardinality(String), String)') AS ResourceAttributes, arrayJoin(rm.scope_metrics) AS sm
      FROM (SELECT arrayJoin(resource_metrics) AS rm FROM otlp_metrics_rare))));

CREATE MATERIALIZED VIEW otlp_metrics_summary_mv TO otel_metrics_summary AS
SELECT
  ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes,
  ResourceAttributes['service.name'] AS ServiceName,
  MetricName, MetricDescription, MetricUnit,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), p.attributes), 'Map(LowCardinality(String), String)') AS Attributes,
  fromUnixTimestamp64Nano(toInt64(least(p.start_time_unix_nano, 9223372036854775807)), 'UTC') AS StartTimeUnix,
  fromUnixTimestamp64Nano(toInt64(least(p.time_unix_nano, 9223372036854775807)), 'UTC') AS TimeUnix,
  p.count AS Count, p.sum AS Sum, p.quantile_values.quantile AS `ValueAtQuantiles.Quantile`, p.quantile_values.value AS `ValueAtQuantiles.Value`,
  p.flags AS Flags
FROM (
  SELECT ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes, toValidUTF8(m.name) AS MetricName, toValidUTF8(m.description) AS MetricDescription,
    toValidUTF8(m.unit) AS MetricUnit, arrayJoin(m.summary.data_points) AS p
  FROM (
    SELECT ResourceAttributes, toValidUTF8(sm.scope.name) AS ScopeName, toValidUTF8(sm.scope.version) AS ScopeVersion,
      CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), sm.scope.attributes), 'Map(LowCardinality(String), String)') AS ScopeAttributes, arrayJoin(sm.metrics) AS m
    FROM (
      SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rm.resource.attributes), 'Map(LowCardinality(String), String)') AS ResourceAttributes, arrayJoin(rm.scope_metrics) AS sm
      FROM (SELECT arrayJoin(resource_metrics) AS rm FROM otlp_metrics_rare))));

-- Gauges and sums again, now with their exemplars.
DROP VIEW IF EXISTS otlp_metrics_gauge_mv;

CREATE MATERIALIZED VIEW otlp_metrics_gauge_mv TO otel_metrics_gauge AS
SELECT
  ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes,
  ResourceAttributes['service.name'] AS ServiceName,
  MetricName, MetricDescription, MetricUnit,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), p.attributes), 'Map(LowCardinality(String), String)') AS Attributes,
  fromUnixTimestamp64Nano(toInt64(least(p.start_time_unix_nano, 9223372036854775807)), 'UTC') AS StartTimeUnix,
  fromUnixTimestamp64Nano(toInt64(least(p.time_unix_nano, 9223372036854775807)), 'UTC') AS TimeUnix,
  if(p.value = 'as_int', toFloat64(p.as_int), p.as_double) AS Value,
  p.flags AS Flags,
  arrayMap(x -> CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), x.filtered_attributes), 'Map(LowCardinality(String), String)'), p.exemplars) AS `Exemplars.FilteredAttributes`,
  arrayMap(x -> fromUnixTimestamp64Nano(toInt64(least(x.time_unix_nano, 9223372036854775807)), 'UTC'), p.exemplars) AS `Exemplars.TimeUnix`,
  arrayMap(x -> if(x.value = 'as_int', toFloat64(x.as_int), x.as_double), p.exemplars) AS `Exemplars.Value`,
  arrayMap(x -> lower(hex(x.span_id)), p.exemplars) AS `Exemplars.SpanId`,
  arrayMap(x -> lower(hex(x.trace_id)), p.exemplars) AS `Exemplars.TraceId`
FROM (
  SELECT ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes, toValidUTF8(m.name) AS MetricName, toValidUTF8(m.description) AS MetricDescription,
    toValidUTF8(m.unit) AS MetricUnit, arrayJoin(m.gauge.data_points) AS p
  FROM (
    SELECT ResourceAttributes, toValidUTF8(sm.scope.name) AS ScopeName, toValidUTF8(sm.scope.version) AS ScopeVersion,
      CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), sm.scope.attributes), 'Map(LowCardinality(String), String)') AS ScopeAttributes, arrayJoin(sm.metrics) AS m
    FROM (
      SELECT CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), rm.resource.attributes), 'Map(LowCardinality(String), String)') AS ResourceAttributes, arrayJoin(rm.scope_metrics) AS sm
      FROM (SELECT arrayJoin(resource_metrics) AS rm FROM otlp_metrics))))
WHERE p.value != '';

DROP VIEW IF EXISTS otlp_metrics_sum_mv;

CREATE MATERIALIZED VIEW otlp_metrics_sum_mv TO otel_metrics_sum AS
SELECT
  ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes,
  ResourceAttributes['service.name'] AS ServiceName,
  MetricName, MetricDescription, MetricUnit,
  CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), p.attributes), 'Map(LowCardinality(String), String)') AS Attributes,
  fromUnixTimestamp64Nano(toInt64(least(p.start_time_unix_nano, 9223372036854775807)), 'UTC') AS StartTimeUnix,
  fromUnixTimestamp64Nano(toInt64(least(p.time_unix_nano, 9223372036854775807)), 'UTC') AS TimeUnix,
  if(p.value = 'as_int', toFloat64(p.as_int), p.as_double) AS Value, Temporality AS AggregationTemporality, Monotonic AS IsMonotonic,
  p.flags AS Flags,
  arrayMap(x -> CAST(arrayMap(a -> (toValidUTF8(a.key), multiIf(a.value.value = 'string_value', toValidUTF8(a.value.string_value), a.value.value = 'int_value', toString(a.value.int_value), a.value.value = 'bool_value', if(a.value.bool_value, 'true', 'false'), a.value.value = 'double_value', toString(a.value.double_value), a.value.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> multiIf(e.value = 'string_value', toJSONString(toValidUTF8(e.string_value)), e.value = 'int_value', toString(e.int_value), e.value = 'bool_value', if(e.bool_value, 'true', 'false'), e.value = 'double_value', toString(e.double_value), 'null'), a.value.array_value.values), ','), ']'), '')), x.filtered_attributes), 'Map(LowCardinality(String), String)'), p.exemplars) AS `Exemplars.FilteredAttributes`,
  arrayMap(x -> fromUnixTimestamp64Nano(toInt64(least(x.time_unix_nano, 9223372036854775807)), 'UTC'), p.exemplars) AS `Exemplars.TimeUnix`,
  arrayMap(x -> if(x.value = 'as_int', toFloat64(x.as_int), x.as_double), p.exemplars) AS `Exemplars.Value`,
  arrayMap(x -> lower(hex(x.span_id)), p.exemplars) AS `Exemplars.SpanId`,
  arrayMap(x -> lower(hex(x.trace_id)), p.exemplars) AS `Exemplars.TraceId`
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
