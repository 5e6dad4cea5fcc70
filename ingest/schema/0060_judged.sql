-- What the job writes goes through `judged`: the rows of requests, and on the first of them what all add to the rollups, summed. A block of rows falls
-- into few buckets; the view that spread each row into one per metric took more time than judging did. Rows that are put into requests
-- itself are fed by the old view as before, which leaves alone what came with its sums.
ALTER TABLE requests ADD COLUMN IF NOT EXISTS Summed Bool DEFAULT false COMMENT 'came through judged, with what it adds to the rollups';

ALTER TABLE rollup_feed_mv MODIFY QUERY
WITH toInt64(Sign) * toInt64(SampleWeight) AS w,
  toInt64(multiIf(m = 1, DurationNs, m = 2, assumeNotNull(TtftNs), assumeNotNull(TpotNs))) AS ns
SELECT ['duration', 'ttft', 'tpot'][m] AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, End,
  toInt32(ceil(log(greatest(ns, 1)) / log(1.02))) AS K, w AS N, w * ns AS SumNs,
  w * multiIf(m = 1, toInt64(requests.NetInNs), m = 2, toInt64(requests.NetInTtftNs), toInt64(requests.NetInNs) - toInt64(requests.NetInTtftNs)) AS NetInNs,
  w * multiIf(m = 1, toInt64(requests.AuthNs), m = 2, toInt64(requests.AuthTtftNs), toInt64(requests.AuthNs) - toInt64(requests.AuthTtftNs)) AS AuthNs,
  w * multiIf(m = 1, toInt64(requests.RateLimitNs), m = 2, toInt64(requests.RateLimitTtftNs), toInt64(requests.RateLimitNs) - toInt64(requests.RateLimitTtftNs)) AS RateLimitNs,
  w * multiIf(m = 1, toInt64(requests.AdmissionNs), m = 2, toInt64(requests.AdmissionTtftNs), toInt64(requests.AdmissionNs) - toInt64(requests.AdmissionTtftNs)) AS AdmissionNs,
  w * multiIf(m = 1, toInt64(requests.ParseNs), m = 2, toInt64(requests.ParseTtftNs), toInt64(requests.ParseNs) - toInt64(requests.ParseTtftNs)) AS ParseNs,
  w * multiIf(m = 1, toInt64(requests.GuardrailNs), m = 2, toInt64(requests.GuardrailTtftNs), toInt64(requests.GuardrailNs) - toInt64(requests.GuardrailTtftNs)) AS GuardrailNs,
  w * multiIf(m = 1, toInt64(requests.CacheLookupNs), m = 2, toInt64(requests.CacheLookupTtftNs), toInt64(requests.CacheLookupNs) - toInt64(requests.CacheLookupTtftNs)) AS CacheLookupNs,
  w * multiIf(m = 1, toInt64(requests.RouteNs), m = 2, toInt64(requests.RouteTtftNs), toInt64(requests.RouteNs) - toInt64(requests.RouteTtftNs)) AS RouteNs,
  w * multiIf(m = 1, toInt64(requests.DispatchNs), m = 2, toInt64(requests.DispatchTtftNs), toInt64(requests.DispatchNs) - toInt64(requests.DispatchTtftNs)) AS DispatchNs,
  w * multiIf(m = 1, toInt64(requests.TemplateNs), m = 2, toInt64(requests.TemplateTtftNs), toInt64(requests.TemplateNs) - toInt64(requests.TemplateTtftNs)) AS TemplateNs,
  w * multiIf(m = 1, toInt64(requests.TokenizeNs), m = 2, toInt64(requests.TokenizeTtftNs), toInt64(requests.TokenizeNs) - toInt64(requests.TokenizeTtftNs)) AS TokenizeNs,
  w * multiIf(m = 1, toInt64(requests.MmEncodeNs), m = 2, toInt64(requests.MmEncodeTtftNs), toInt64(requests.MmEncodeNs) - toInt64(requests.MmEncodeTtftNs)) AS MmEncodeNs,
  w * multiIf(m = 1, toInt64(requests.EngineSubmitNs), m = 2, toInt64(requests.EngineSubmitTtftNs), toInt64(requests.EngineSubmitNs) - toInt64(requests.EngineSubmitTtftNs)) AS EngineSubmitNs,
  w * multiIf(m = 1, toInt64(requests.QueueNs), m = 2, toInt64(requests.QueueTtftNs), toInt64(requests.QueueNs) - toInt64(requests.QueueTtftNs)) AS QueueNs,
  w * multiIf(m = 1, toInt64(requests.GrammarNs), m = 2, toInt64(requests.GrammarTtftNs), toInt64(requests.GrammarNs) - toInt64(requests.GrammarTtftNs)) AS GrammarNs,
  w * multiIf(m = 1, toInt64(requests.KvLoadNs), m = 2, toInt64(requests.KvLoadTtftNs), toInt64(requests.KvLoadNs) - toInt64(requests.KvLoadTtftNs)) AS KvLoadNs,
  w * multiIf(m = 1, toInt64(requests.KvTransferNs), m = 2, toInt64(requests.KvTransferTtftNs), toInt64(requests.KvTransferNs) - toInt64(requests.KvTransferTtftNs)) AS KvTransferNs,
  w * multiIf(m = 1, toInt64(requests.BatchWaitNs), m = 2, toInt64(requests.BatchWaitTtftNs), toInt64(requests.BatchWaitNs) - toInt64(requests.BatchWaitTtftNs)) AS BatchWaitNs,
  w * multiIf(m = 1, toInt64(requests.PrefillNs), m = 2, toInt64(requests.PrefillTtftNs), toInt64(requests.PrefillNs) - toInt64(requests.PrefillTtftNs)) AS PrefillNs,
  w * multiIf(m = 1, toInt64(requests.ForwardNs), m = 2, toInt64(requests.ForwardTtftNs), toInt64(requests.ForwardNs) - toInt64(requests.ForwardTtftNs)) AS ForwardNs,
  w * multiIf(m = 1, toInt64(requests.DecodeNs), m = 2, toInt64(requests.DecodeTtftNs), toInt64(requests.DecodeNs) - toInt64(requests.DecodeTtftNs)) AS DecodeNs,
  w * multiIf(m = 1, toInt64(requests.PreemptedNs), m = 2, toInt64(requests.PreemptedTtftNs), toInt64(requests.PreemptedNs) - toInt64(requests.PreemptedTtftNs)) AS PreemptedNs,
  w * multiIf(m = 1, toInt64(requests.EngineReturnNs), m = 2, toInt64(requests.EngineReturnTtftNs), toInt64(requests.EngineReturnNs) - toInt64(requests.EngineReturnTtftNs)) AS EngineReturnNs,
  w * multiIf(m = 1, toInt64(requests.DetokenizeNs), m = 2, toInt64(requests.DetokenizeTtftNs), toInt64(requests.DetokenizeNs) - toInt64(requests.DetokenizeTtftNs)) AS DetokenizeNs,
  w * multiIf(m = 1, toInt64(requests.PostprocessNs), m = 2, toInt64(requests.PostprocessTtftNs), toInt64(requests.PostprocessNs) - toInt64(requests.PostprocessTtftNs)) AS PostprocessNs,
  w * multiIf(m = 1, toInt64(requests.StreamOutNs), m = 2, toInt64(requests.StreamOutTtftNs), toInt64(requests.StreamOutNs) - toInt64(requests.StreamOutTtftNs)) AS StreamOutNs,
  w * multiIf(m = 1, toInt64(requests.FinalizeNs), m = 2, toInt64(requests.FinalizeTtftNs), toInt64(requests.FinalizeNs) - toInt64(requests.FinalizeTtftNs)) AS FinalizeNs,
  w * multiIf(m = 1, toInt64(requests.NetworkNs), m = 2, toInt64(requests.NetworkTtftNs), toInt64(requests.NetworkNs) - toInt64(requests.NetworkTtftNs)) AS NetworkNs,
  w * multiIf(m = 1, toInt64(requests.ExternalNs), m = 2, toInt64(requests.ExternalTtftNs), toInt64(requests.ExternalNs) - toInt64(requests.ExternalTtftNs)) AS ExternalNs,
  w * multiIf(m = 1, toInt64(requests.AppNs), m = 2, toInt64(requests.AppTtftNs), toInt64(requests.AppNs) - toInt64(requests.AppTtftNs)) AS AppNs,
  w * multiIf(m = 1, toInt64(requests.CustomNs), m = 2, toInt64(requests.CustomTtftNs), toInt64(requests.CustomNs) - toInt64(requests.CustomTtftNs)) AS CustomNs,
  w * multiIf(m = 1, toInt64(requests.UnexplainedNs), m = 2, toInt64(requests.UnexplainedTtftNs), toInt64(requests.UnexplainedNs) - toInt64(requests.UnexplainedTtftNs)) AS UnexplainedNs
FROM requests ARRAY JOIN arrayFilter(x -> x = 1 OR (x = 2 AND isNotNull(TtftNs)) OR (x = 3 AND isNotNull(TpotNs)), [1, 2, 3]) AS m
WHERE Kind = 'request' AND NOT has(Flags, 'clock_fault') AND NOT Summed;

CREATE TABLE judged AS requests ENGINE = Null;

ALTER TABLE judged ADD COLUMN IF NOT EXISTS Feed Array(Tuple(
  Metric LowCardinality(String),
  Service LowCardinality(String),
  Route LowCardinality(String),
  Model LowCardinality(String),
  Version LowCardinality(String),
  Outcome LowCardinality(String),
  Streaming LowCardinality(String),
  IsRoot Bool,
  Stratum UInt64,
  End DateTime64(9, 'UTC'),
  K Int32,
  N Int64,
  SumNs Int64,
  NetInNs Int64,
  AuthNs Int64,
  RateLimitNs Int64,
  AdmissionNs Int64,
  ParseNs Int64,
  GuardrailNs Int64,
  CacheLookupNs Int64,
  RouteNs Int64,
  DispatchNs Int64,
  TemplateNs Int64,
  TokenizeNs Int64,
  MmEncodeNs Int64,
  EngineSubmitNs Int64,
  QueueNs Int64,
  GrammarNs Int64,
  KvLoadNs Int64,
  KvTransferNs Int64,
  BatchWaitNs Int64,
  PrefillNs Int64,
  ForwardNs Int64,
  DecodeNs Int64,
  PreemptedNs Int64,
  EngineReturnNs Int64,
  DetokenizeNs Int64,
  PostprocessNs Int64,
  StreamOutNs Int64,
  FinalizeNs Int64,
  NetworkNs Int64,
  ExternalNs Int64,
  AppNs Int64,
  CustomNs Int64,
  UnexplainedNs Int64));

CREATE MATERIALIZED VIEW judged_rows_mv TO requests AS
SELECT * EXCEPT (Feed) FROM judged;

CREATE MATERIALIZED VIEW judged_feed_mv TO rollup_feed AS
SELECT sums.Metric AS Metric, sums.Service AS Service, sums.Route AS Route, sums.Model AS Model, sums.Version AS Version, sums.Outcome AS Outcome, sums.Streaming AS Streaming, sums.IsRoot AS IsRoot, sums.Stratum AS Stratum, sums.End AS End, sums.K AS K, sums.N AS N, sums.SumNs AS SumNs, sums.NetInNs AS NetInNs, sums.AuthNs AS AuthNs, sums.RateLimitNs AS RateLimitNs, sums.AdmissionNs AS AdmissionNs, sums.ParseNs AS ParseNs, sums.GuardrailNs AS GuardrailNs, sums.CacheLookupNs AS CacheLookupNs, sums.RouteNs AS RouteNs, sums.DispatchNs AS DispatchNs, sums.TemplateNs AS TemplateNs, sums.TokenizeNs AS TokenizeNs, sums.MmEncodeNs AS MmEncodeNs, sums.EngineSubmitNs AS EngineSubmitNs, sums.QueueNs AS QueueNs, sums.GrammarNs AS GrammarNs, sums.KvLoadNs AS KvLoadNs, sums.KvTransferNs AS KvTransferNs, sums.BatchWaitNs AS BatchWaitNs, sums.PrefillNs AS PrefillNs, sums.ForwardNs AS ForwardNs, sums.DecodeNs AS DecodeNs, sums.PreemptedNs AS PreemptedNs, sums.EngineReturnNs AS EngineReturnNs, sums.DetokenizeNs AS DetokenizeNs, sums.PostprocessNs AS PostprocessNs, sums.StreamOutNs AS StreamOutNs, sums.FinalizeNs AS FinalizeNs, sums.NetworkNs AS NetworkNs, sums.ExternalNs AS ExternalNs, sums.AppNs AS AppNs, sums.CustomNs AS CustomNs, sums.UnexplainedNs AS UnexplainedNs
FROM judged ARRAY JOIN Feed AS sums;
