-- When a series (service and model, by duration, TTFT or TPOT) became slower, and what of that is known. The newest row of an id stands.
CREATE TABLE changes (
  Id String,
  Metric LowCardinality(String),
  Service LowCardinality(String),
  Model LowCardinality(String),
  Onset DateTime64(0, 'UTC') COMMENT 'start of the first interval that departs',
  SuspectedAt DateTime64(0, 'UTC'),
  ConfirmedAt Nullable(DateTime64(0, 'UTC')),
  Until Nullable(DateTime64(0, 'UTC')) COMMENT 'when it was over',
  State LowCardinality(String) COMMENT 'suspected, confirmed, resolved, dismissed, accepted, withdrawn, cost_shift',
  Statistic LowCardinality(String) COMMENT 'body or tail',
  Departure Float64 COMMENT 'mean z of the intervals that confirmed it',
  Stage LowCardinality(String) COMMENT 'the stage that grew most among like requests',
  StageShare Float64 COMMENT 'of all growth',
  Cause String COMMENT 'the id of the first change of the same cause',
  Marker String COMMENT 'id of the deploy or configuration change nearest to its onset',
  Body String COMMENT 'JSON: before and after with intervals, stages, traffic, examples',
  UpdatedAt DateTime64(6, 'UTC')
) ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY Id
SETTINGS non_replicated_deduplication_window = 100000;

-- How well each series can be judged. The newest row of a series stands.
CREATE TABLE series_state (
  Metric LowCardinality(String),
  Service LowCardinality(String),
  Model LowCardinality(String),
  JudgedUpTo DateTime64(0, 'UTC'),
  Requests UInt64 COMMENT 'of the intervals that were judged; a late one changes it',
  Learning UInt32 COMMENT 'reference requests so far while warming up, else 0',
  LearningOf UInt32,
  Covered Float64 COMMENT 'share of requests that are of a kind the reference knows',
  UpdatedAt DateTime64(6, 'UTC')
) ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY (Service, Model, Metric)
SETTINGS non_replicated_deduplication_window = 100000;
