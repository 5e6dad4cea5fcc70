-- What the job writes goes through `judged`: the rows of requests, and what they add to the rollups, summed already. A block of rows falls
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

ALTER TABLE judged
  ADD COLUMN IF NOT EXISTS `Feed.Metric` Array(LowCardinality(String)),
  ADD COLUMN IF NOT EXISTS `Feed.Service` Array(LowCardinality(String)),
  ADD COLUMN IF NOT EXISTS `Feed.Route` Array(LowCardinality(String)),
  ADD COLUMN IF NOT EXISTS `Feed.Model` Array(LowCardinality(String)),
  ADD COLUMN IF NOT EXISTS `Feed.Version` Array(LowCardinality(String)),
  ADD COLUMN IF NOT EXISTS `Feed.Outcome` Array(LowCardinality(String)),
  ADD COLUMN IF NOT EXISTS `Feed.Streaming` Array(LowCardinality(String)),
  ADD COLUMN IF NOT EXISTS `Feed.IsRoot` Array(Bool),
  ADD COLUMN IF NOT EXISTS `Feed.Stratum` Array(UInt64),
  ADD COLUMN IF NOT EXISTS `Feed.End` Array(DateTime64(9, 'UTC')),
  ADD COLUMN IF NOT EXISTS `Feed.K` Array(Int32),
  ADD COLUMN IF NOT EXISTS `Feed.N` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.SumNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.NetInNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.AuthNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.RateLimitNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.AdmissionNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.ParseNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.GuardrailNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.CacheLookupNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.RouteNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.DispatchNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.TemplateNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.TokenizeNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.MmEncodeNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.EngineSubmitNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.QueueNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.GrammarNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.KvLoadNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.KvTransferNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.BatchWaitNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.PrefillNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.ForwardNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.DecodeNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.PreemptedNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.EngineReturnNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.DetokenizeNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.PostprocessNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.StreamOutNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.FinalizeNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.NetworkNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.ExternalNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.AppNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.CustomNs` Array(Int64),
  ADD COLUMN IF NOT EXISTS `Feed.UnexplainedNs` Array(Int64);

CREATE MATERIALIZED VIEW judged_rows_mv TO requests AS
SELECT * EXCEPT (`Feed.Metric`, `Feed.Service`, `Feed.Route`, `Feed.Model`, `Feed.Version`, `Feed.Outcome`, `Feed.Streaming`, `Feed.IsRoot`, `Feed.Stratum`, `Feed.End`, `Feed.K`, `Feed.N`, `Feed.SumNs`, `Feed.NetInNs`, `Feed.AuthNs`, `Feed.RateLimitNs`, `Feed.AdmissionNs`, `Feed.ParseNs`, `Feed.GuardrailNs`, `Feed.CacheLookupNs`, `Feed.RouteNs`, `Feed.DispatchNs`, `Feed.TemplateNs`, `Feed.TokenizeNs`, `Feed.MmEncodeNs`, `Feed.EngineSubmitNs`, `Feed.QueueNs`, `Feed.GrammarNs`, `Feed.KvLoadNs`, `Feed.KvTransferNs`, `Feed.BatchWaitNs`, `Feed.PrefillNs`, `Feed.ForwardNs`, `Feed.DecodeNs`, `Feed.PreemptedNs`, `Feed.EngineReturnNs`, `Feed.DetokenizeNs`, `Feed.PostprocessNs`, `Feed.StreamOutNs`, `Feed.FinalizeNs`, `Feed.NetworkNs`, `Feed.ExternalNs`, `Feed.AppNs`, `Feed.CustomNs`, `Feed.UnexplainedNs`) FROM judged;

CREATE MATERIALIZED VIEW judged_feed_mv TO rollup_feed AS
SELECT Feed.Metric AS Metric, Feed.Service AS Service, Feed.Route AS Route, Feed.Model AS Model, Feed.Version AS Version, Feed.Outcome AS Outcome, Feed.Streaming AS Streaming, Feed.IsRoot AS IsRoot, Feed.Stratum AS Stratum, Feed.End AS End, Feed.K AS K, Feed.N AS N, Feed.SumNs AS SumNs, Feed.NetInNs AS NetInNs, Feed.AuthNs AS AuthNs, Feed.RateLimitNs AS RateLimitNs, Feed.AdmissionNs AS AdmissionNs, Feed.ParseNs AS ParseNs, Feed.GuardrailNs AS GuardrailNs, Feed.CacheLookupNs AS CacheLookupNs, Feed.RouteNs AS RouteNs, Feed.DispatchNs AS DispatchNs, Feed.TemplateNs AS TemplateNs, Feed.TokenizeNs AS TokenizeNs, Feed.MmEncodeNs AS MmEncodeNs, Feed.EngineSubmitNs AS EngineSubmitNs, Feed.QueueNs AS QueueNs, Feed.GrammarNs AS GrammarNs, Feed.KvLoadNs AS KvLoadNs, Feed.KvTransferNs AS KvTransferNs, Feed.BatchWaitNs AS BatchWaitNs, Feed.PrefillNs AS PrefillNs, Feed.ForwardNs AS ForwardNs, Feed.DecodeNs AS DecodeNs, Feed.PreemptedNs AS PreemptedNs, Feed.EngineReturnNs AS EngineReturnNs, Feed.DetokenizeNs AS DetokenizeNs, Feed.PostprocessNs AS PostprocessNs, Feed.StreamOutNs AS StreamOutNs, Feed.FinalizeNs AS FinalizeNs, Feed.NetworkNs AS NetworkNs, Feed.ExternalNs AS ExternalNs, Feed.AppNs AS AppNs, Feed.CustomNs AS CustomNs, Feed.UnexplainedNs AS UnexplainedNs
FROM judged ARRAY JOIN Feed;
