-- Episodes: one a rule and cause, from its start until it is over. The newest revision of an id stands.
CREATE TABLE alerts (
  Id String,
  Rule LowCardinality(String),
  Cause String COMMENT 'what it is about: a change of that cause, or the rule and its service',
  State LowCardinality(String) COMMENT 'open, acknowledged, resolved',
  OpenedAt DateTime64(3, 'UTC'),
  EndedAt Nullable(DateTime64(3, 'UTC')),
  MutedUntil Nullable(DateTime64(3, 'UTC')),
  Reopened UInt32,
  Flapping Bool,
  Summary String,
  Body String COMMENT 'JSON of the message',
  Revision UInt64,
  UpdatedAt DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = ReplacingMergeTree(Revision)
ORDER BY Id
SETTINGS non_replicated_deduplication_window = 100000;
