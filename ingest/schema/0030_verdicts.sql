-- What most of a window's excess waited for, per service: one row a window, the newest wins. Body is the answer as JSON.
CREATE TABLE verdicts (
  Start DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
  End DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
  Service LowCardinality(String),
  State LowCardinality(String) COMMENT 'slower, as_before, too_few',
  Cause LowCardinality(String) COMMENT 'empty where nothing is slower',
  Share Float32,
  Confidence LowCardinality(String),
  Relative Float32 COMMENT 'excess / reference mean',
  Body String CODEC(ZSTD(1)),
  UpdatedAt DateTime64(3, 'UTC') DEFAULT now64(3)
) ENGINE = ReplacingMergeTree(UpdatedAt)
PARTITION BY toYYYYMM(Start)
ORDER BY (Service, Start)
SETTINGS non_replicated_deduplication_window = 100000;
