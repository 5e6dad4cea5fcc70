-- The inbox again: events and links that engines speak in travel as notes among the attributes (analytics/engines/notes.py has the
-- same expression for whole traces), and spans that stand for a request of an engine bring their attributes.
DROP VIEW IF EXISTS span_inbox_mv;

CREATE MATERIALIZED VIEW span_inbox_mv TO span_inbox AS
WITH if(empty(Events.Name) AND empty(Links.TraceId), [], arrayConcat(
    arrayFilter(note -> note.1 != '', arrayMap((name, time, k) -> (
      if(name IN ('retract', 'REQUEST_START', 'QUEUE_START', 'COMPUTE_START', 'COMPUTE_INPUT_END', 'COMPUTE_OUTPUT_START', 'COMPUTE_END', 'HTTP_RECV_START', 'HTTP_RECV_END', 'HTTP_SEND_START', 'HTTP_SEND_END', 'GRPC_WAITREAD_START', 'GRPC_WAITREAD_END', 'GRPC_SEND_START', 'GRPC_SEND_END') AND k <= 8, concat('@event/', name, '/', toString(k)), ''),
      toString(toUnixTimestamp64Nano(time) - toUnixTimestamp64Nano(Timestamp))),
      Events.Name, Events.Timestamp, arrayEnumerateUniq(Events.Name))),
    if(otel_traces.ParentSpanId = '' AND notEmpty(Links.TraceId),
      [('@link', concat(Links.TraceId[1], '/', Links.SpanId[1]))], []))) AS Notes
SELECT ReceivedAt AS Received,
  toFixedString(substring(unhex(otel_traces.TraceId), 1, 16), 16) AS TraceId,
  reinterpretAsUInt64(reverse(unhex(otel_traces.SpanId))) AS SpanId,
  reinterpretAsUInt64(reverse(unhex(otel_traces.ParentSpanId))) AS ParentSpanId,
  toUnixTimestamp64Nano(Timestamp) AS StartNs,
  Duration AS DurationNs, ClockFault, cityHash64(otel_traces.TraceId) % 16 AS Shard,
  SpanKind AS Kind, ServiceName AS Service, SpanName AS Name, ScopeName AS Scope, StatusCode AS Status, Stage,
  if(Stage = 'custom', SpanAttributes['tailtrace.stage_name'], '') AS StageName,
  NOT (Stage != '' AND SpanAttributes['tailtrace.blocking'] = 'false') AS Blocking,
  cityHash64(mapKeys(ResourceAttributes), mapValues(ResourceAttributes)) AS Resource,
  otel_traces.ParentSpanId = '' OR SpanKind IN ('Server', 'Consumer') OR (Stage = '' AND (mapContains(SpanAttributes, 'tailtrace.request') OR mapContains(SpanAttributes, 'gen_ai.request.id')))
    OR ScopeName IN ('sglang server', 'litellm', 'llm-d-inference-scheduler')
    OR (ScopeName = 'opentelemetry-otlp' AND SpanName IN ('generate', 'generate_stream', 'completions', 'chat_completions', 'compat_generate'))
    OR notEmpty(Notes) AS HasAttributes,
  multiIf(NOT HasAttributes, CAST(map(), 'Map(LowCardinality(String), String)'), empty(Notes), SpanAttributes,
    mapConcat(SpanAttributes, CAST(Notes, 'Map(LowCardinality(String), String)'))) AS Attributes
FROM otel_traces WHERE otel_traces.TraceId != '';
