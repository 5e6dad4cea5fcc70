-- Rules and channels made by the API; those of the file are not here. The newest row of a name stands.
CREATE TABLE alert_objects (
  Kind LowCardinality(String) COMMENT 'rule or channel',
  Name String,
  Body String COMMENT 'JSON as its model validates it; secrets of channels included, which no answer repeats',
  Deleted Bool,
  UpdatedAt DateTime64(6, 'UTC')
) ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY (Kind, Name)
SETTINGS non_replicated_deduplication_window = 100000;
