-- A trace by its id asks each part of this table, and its rows are a tenth of the spans' and short: merging it as the engine would by itself costs
-- little, and waiting for thirty parts made the first step of each lookup as long as reading the spans.
ALTER TABLE otel_traces_trace_id_ts RESET SETTING merge_selector_base;
