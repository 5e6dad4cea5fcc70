-- Deploys and configuration changes: found in the telemetry, or told by the API. The newest row of an id stands.
CREATE TABLE markers (
  Id String,
  Time DateTime64(3, 'UTC'),
  Service LowCardinality(String),
  Kind LowCardinality(String) COMMENT 'version, engine_version, precision, quantization, or the word the API was given',
  Was String,
  Became String,
  Text String,
  Source LowCardinality(String) COMMENT 'telemetry or api',
  UpdatedAt DateTime64(6, 'UTC')
) ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY Id
SETTINGS non_replicated_deduplication_window = 100000;
