-- Retention drops parts of the newest day when one day alone is over the budget, so parts of spans and logs stay small beside it.
ALTER TABLE otel_traces MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1073741824;

ALTER TABLE otel_logs MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1073741824;
