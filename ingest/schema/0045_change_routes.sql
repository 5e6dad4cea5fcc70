-- Routes of a service are judged as series of their own; a change that came while another was going on stands on top of it.
ALTER TABLE changes
  ADD COLUMN IF NOT EXISTS Route LowCardinality(String) COMMENT 'empty: all routes together' AFTER Model,
  ADD COLUMN IF NOT EXISTS OnTop Bool COMMENT 'judged against what was usual during a change that was going on' AFTER Statistic;

ALTER TABLE series_state
  ADD COLUMN IF NOT EXISTS Route LowCardinality(String) AFTER Model,
  MODIFY ORDER BY (Service, Model, Metric, Route);

-- What a marker did: before and after, like traffic with like.
ALTER TABLE markers ADD COLUMN IF NOT EXISTS Effect String COMMENT 'JSON; empty until there are requests enough behind it' AFTER Source;
