-- A small part is one file (`data.packed`) instead of ten to thirteen: an insert with its views makes a part of each table, and making and
-- removing files was a third of what a small insert took (on ext4 without a journal far more: it passes over each file removed lately).
-- A merge writes larger parts as before. An engine that does not know packed parts (before about 26.7) leaves this alone.
ALTER TABLE alert_objects MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE alerts MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE changes MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE client_losses MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE engine_steps MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE losses MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE markers MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE otel_logs MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE otel_metrics_exp_histogram MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE otel_metrics_gauge MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE otel_metrics_histogram MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE otel_metrics_sum MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE otel_metrics_summary MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE otel_traces MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE otel_traces_trace_id_ts MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE outbox MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE outbox_claims MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE requests MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE resources MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE rollup_1d MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE rollup_1h MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE rollup_1m MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE series_state MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE span_inbox MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE strata_1d MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE strata_5m MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE verdicts MODIFY SETTING min_bytes_for_full_part_storage = 4194304;

ALTER TABLE watermarks MODIFY SETTING min_bytes_for_full_part_storage = 4194304;
