-- What an insert of a segment costs. A small part in one file spares fifty, and buffers that grow with their column spare 100 MiB; a
-- merge writes large parts column by column as before.
ALTER TABLE otel_traces MODIFY SETTING min_bytes_for_wide_part = 67108864, min_columns_to_activate_adaptive_write_buffer = 10;

-- Twice as many parts at rest, half the rows that merges write again.
ALTER TABLE otel_traces MODIFY SETTING merge_selector_base = 12;

-- A queue of some minutes, dropped behind the jobs: merging it is work for nothing beyond the smallest parts.
ALTER TABLE span_inbox MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1000000;
