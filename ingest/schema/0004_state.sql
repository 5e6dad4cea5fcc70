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
