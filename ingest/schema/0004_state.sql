-- What the jobs remember. One row per shard and job; the newest wins.
CREATE TABLE watermarks (
  Job LowCardinality(String),
  Shard UInt8,
  ReceivedUpTo DateTime64(3, 'UTC') COMMENT 'all spans received up to here have been judged',
  Note String,
  UpdatedAt DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY (Job, Shard)
SETTINGS non_replicated_deduplication_window = 100000;

-- Counts that tell how complete the picture is: rejected, dropped by clients, orphaned. Added up per minute.
CREATE TABLE losses (
  Time DateTime64(0, 'UTC'),
  Service LowCardinality(String),
  Signal LowCardinality(String),
  Kind LowCardinality(String) COMMENT 'rejected, client_dropped, orphaned',
  Reason LowCardinality(String),
  Count SimpleAggregateFunction(sum, UInt64)
) ENGINE = SummingMergeTree
ORDER BY (Service, Signal, Kind, Reason, Time)
SETTINGS non_replicated_deduplication_window = 100000;

-- What the jobs read: new spans in order of arrival, with the columns that judging needs; dropped behind the watermark. Attributes
-- only of spans that can be an entry or an engine's request: a trace that needs others is read from otel_traces.
CREATE TABLE span_inbox (
  Received DateTime64(3, 'UTC') CODEC(Delta, LZ4),
  TraceId FixedString(16) CODEC(LZ4),
  SpanId UInt64 CODEC(LZ4),
  ParentSpanId UInt64 CODEC(LZ4),
  StartNs Int64 CODEC(LZ4),
  DurationNs UInt64 CODEC(LZ4),
  ClockFault Bool CODEC(LZ4),
  Shard UInt8 CODEC(LZ4),
  Kind LowCardinality(String) CODEC(LZ4),
  Service LowCardinality(String) CODEC(LZ4),
  Name LowCardinality(String) CODEC(LZ4),
  Scope LowCardinality(String) CODEC(LZ4),
  Status LowCardinality(String) CODEC(LZ4),
  Stage LowCardinality(String) CODEC(LZ4),
  StageName LowCardinality(String) CODEC(LZ4),
  Blocking Bool CODEC(LZ4),
  Resource UInt64 CODEC(LZ4),
  HasAttributes Bool CODEC(LZ4),
  Attributes Map(LowCardinality(String), String) CODEC(LZ4)
) ENGINE = MergeTree
PARTITION BY toStartOfFiveMinutes(Received)
ORDER BY Received
SETTINGS non_replicated_deduplication_window = 100000, enable_block_number_column = 1;

CREATE MATERIALIZED VIEW span_inbox_mv TO span_inbox AS
SELECT ReceivedAt AS Received,
  toFixedString(substring(unhex(otel_traces.TraceId), 1, 16), 16) AS TraceId,
  reinterpretAsUInt64(reverse(unhex(otel_traces.SpanId))) AS SpanId,
  reinterpretAsUInt64(reverse(unhex(otel_traces.ParentSpanId))) AS ParentSpanId,
  toUnixTimestamp64Nano(Timestamp) AS StartNs,
  Duration AS DurationNs, ClockFault, cityHash64(otel_traces.TraceId) % 16 AS Shard,
  SpanKind AS Kind, ServiceName AS Service, SpanName AS Name, ScopeName AS Scope, StatusCode AS Status, Stage,
  if(Stage = 'custom', SpanAttributes['tailtrace.stage_name'], '') AS StageName,
  NOT (Stage != '' AND SpanAttributes['tailtrace.blocking'] = 'false') AS Blocking,
  cityHash64(mapKeys(ResourceAttributes), mapValues(ResourceAttributes)) AS Resource,
  otel_traces.ParentSpanId = '' OR SpanKind IN ('Server', 'Consumer') OR (Stage = '' AND (mapContains(SpanAttributes, 'tailtrace.request') OR mapContains(SpanAttributes, 'gen_ai.request.id'))) AS HasAttributes,
  if(HasAttributes, SpanAttributes, CAST(map(), 'Map(LowCardinality(String), String)')) AS Attributes
FROM otel_traces WHERE otel_traces.TraceId != '';

-- The processes that sent spans, by the hash that the inbox names them with.
CREATE TABLE resources (
  Hash UInt64,
  Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  SeenAt DateTime64(3, 'UTC')
) ENGINE = ReplacingMergeTree(SeenAt)
ORDER BY Hash
SETTINGS non_replicated_deduplication_window = 100000;

CREATE MATERIALIZED VIEW resources_mv TO resources AS
SELECT cityHash64(mapKeys(ResourceAttributes), mapValues(ResourceAttributes)) AS Hash, any(ResourceAttributes) AS Attributes, max(ReceivedAt) AS SeenAt
FROM otel_traces GROUP BY Hash;
