-- Each level of merges writes every row once more, and a merge of spans costs as much as their insert did. Wider merges are fewer levels:
-- a minute of full load is written once more instead of twice. The engine lowers this number by itself where more than ten parts gather
-- (to 2 at fifty) and where they have rested for minutes, so at rest there are as few parts as before.
ALTER TABLE otel_traces MODIFY SETTING merge_selector_base = 30;

ALTER TABLE otel_traces_trace_id_ts MODIFY SETTING merge_selector_base = 30;

ALTER TABLE requests MODIFY SETTING merge_selector_base = 30;

ALTER TABLE otel_logs MODIFY SETTING merge_selector_base = 30;

ALTER TABLE otel_metrics_gauge MODIFY SETTING merge_selector_base = 30;

ALTER TABLE otel_metrics_sum MODIFY SETTING merge_selector_base = 30;

ALTER TABLE otel_metrics_histogram MODIFY SETTING merge_selector_base = 30;
