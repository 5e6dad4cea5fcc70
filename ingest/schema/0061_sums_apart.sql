-- The job writes its rows into requests and their sums into the feed, each insert once by its token, and no view hangs on requests any more:
-- planning the views cost more than what they wrote. What is put into `judged` still ends in both: rows that come with their sums, as an
-- earlier release began them, and rows without, which this view sums one by one.
DROP VIEW IF EXISTS rollup_feed_mv;

CREATE MATERIALIZED VIEW judged_unsummed_mv TO rollup_feed AS
WITH toInt64(Sign) * toInt64(SampleWeight) AS w,
  toInt64(multiIf(m = 1, DurationNs, m = 2, assumeNotNull(TtftNs), assumeNotNull(TpotNs))) AS ns
SELECT ['duration', 'ttft', 'tpot'][m] AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, End,
  toInt32(ceil(log(greatest(ns, 1)) / log(1.02))) AS K, w AS N, w * ns AS SumNs,
  w * multiIf(m = 1, toInt64(judged.NetInNs), m = 2, toInt64(judged.NetInTtftNs), toInt64(judged.NetInNs) - toInt64(judged.NetInTtftNs)) AS NetInNs,
  w * multiIf(m = 1, toInt64(judged.AuthNs), m = 2, toInt64(judged.AuthTtftNs), toInt64(judged.AuthNs) - toInt64(judged.AuthTtftNs)) AS AuthNs,
  w * multiIf(m = 1, toInt64(judged.RateLimitNs), m = 2, toInt64(judged.RateLimitTtftNs), toInt64(judged.RateLimitNs) - toInt64(judged.RateLimitTtftNs)) AS RateLimitNs,
  w * multiIf(m = 1, toInt64(judged.AdmissionNs), m = 2, toInt64(judged.AdmissionTtftNs), toInt64(judged.AdmissionNs) - toInt64(judged.AdmissionTtftNs)) AS AdmissionNs,
  w * multiIf(m = 1, toInt64(judged.ParseNs), m = 2, toInt64(judged.ParseTtftNs), toInt64(judged.ParseNs) - toInt64(judged.ParseTtftNs)) AS ParseNs,
  w * multiIf(m = 1, toInt64(judged.GuardrailNs), m = 2, toInt64(judged.GuardrailTtftNs), toInt64(judged.GuardrailNs) - toInt64(judged.GuardrailTtftNs)) AS GuardrailNs,
  w * multiIf(m = 1, toInt64(judged.CacheLookupNs), m = 2, toInt64(judged.CacheLookupTtftNs), toInt64(judged.CacheLookupNs) - toInt64(judged.CacheLookupTtftNs)) AS CacheLookupNs,
  w * multiIf(m = 1, toInt64(judged.RouteNs), m = 2, toInt64(judged.RouteTtftNs), toInt64(judged.RouteNs) - toInt64(judged.RouteTtftNs)) AS RouteNs,
  w * multiIf(m = 1, toInt64(judged.DispatchNs), m = 2, toInt64(judged.DispatchTtftNs), toInt64(judged.DispatchNs) - toInt64(judged.DispatchTtftNs)) AS DispatchNs,
  w * multiIf(m = 1, toInt64(judged.TemplateNs), m = 2, toInt64(judged.TemplateTtftNs), toInt64(judged.TemplateNs) - toInt64(judged.TemplateTtftNs)) AS TemplateNs,
  w * multiIf(m = 1, toInt64(judged.TokenizeNs), m = 2, toInt64(judged.TokenizeTtftNs), toInt64(judged.TokenizeNs) - toInt64(judged.TokenizeTtftNs)) AS TokenizeNs,
  w * multiIf(m = 1, toInt64(judged.MmEncodeNs), m = 2, toInt64(judged.MmEncodeTtftNs), toInt64(judged.MmEncodeNs) - toInt64(judged.MmEncodeTtftNs)) AS MmEncodeNs,
  w * multiIf(m = 1, toInt64(judged.EngineSubmitNs), m = 2, toInt64(judged.EngineSubmitTtftNs), toInt64(judged.EngineSubmitNs) - toInt64(judged.EngineSubmitTtftNs)) AS EngineSubmitNs,
  w * multiIf(m = 1, toInt64(judged.QueueNs), m = 2, toInt64(judged.QueueTtftNs), toInt64(judged.QueueNs) - toInt64(judged.QueueTtftNs)) AS QueueNs,
  w * multiIf(m = 1, toInt64(judged.GrammarNs), m = 2, toInt64(judged.GrammarTtftNs), toInt64(judged.GrammarNs) - toInt64(judged.GrammarTtftNs)) AS GrammarNs,
  w * multiIf(m = 1, toInt64(judged.KvLoadNs), m = 2, toInt64(judged.KvLoadTtftNs), toInt64(judged.KvLoadNs) - toInt64(judged.KvLoadTtftNs)) AS KvLoadNs,
  w * multiIf(m = 1, toInt64(judged.KvTransferNs), m = 2, toInt64(judged.KvTransferTtftNs), toInt64(judged.KvTransferNs) - toInt64(judged.KvTransferTtftNs)) AS KvTransferNs,
  w * multiIf(m = 1, toInt64(judged.BatchWaitNs), m = 2, toInt64(judged.BatchWaitTtftNs), toInt64(judged.BatchWaitNs) - toInt64(judged.BatchWaitTtftNs)) AS BatchWaitNs,
  w * multiIf(m = 1, toInt64(judged.PrefillNs), m = 2, toInt64(judged.PrefillTtftNs), toInt64(judged.PrefillNs) - toInt64(judged.PrefillTtftNs)) AS PrefillNs,
  w * multiIf(m = 1, toInt64(judged.ForwardNs), m = 2, toInt64(judged.ForwardTtftNs), toInt64(judged.ForwardNs) - toInt64(judged.ForwardTtftNs)) AS ForwardNs,
  w * multiIf(m = 1, toInt64(judged.DecodeNs), m = 2, toInt64(judged.DecodeTtftNs), toInt64(judged.DecodeNs) - toInt64(judged.DecodeTtftNs)) AS DecodeNs,
  w * multiIf(m = 1, toInt64(judged.PreemptedNs), m = 2, toInt64(judged.PreemptedTtftNs), toInt64(judged.PreemptedNs) - toInt64(judged.PreemptedTtftNs)) AS PreemptedNs,
  w * multiIf(m = 1, toInt64(judged.EngineReturnNs), m = 2, toInt64(judged.EngineReturnTtftNs), toInt64(judged.EngineReturnNs) - toInt64(judged.EngineReturnTtftNs)) AS EngineReturnNs,
  w * multiIf(m = 1, toInt64(judged.DetokenizeNs), m = 2, toInt64(judged.DetokenizeTtftNs), toInt64(judged.DetokenizeNs) - toInt64(judged.DetokenizeTtftNs)) AS DetokenizeNs,
  w * multiIf(m = 1, toInt64(judged.PostprocessNs), m = 2, toInt64(judged.PostprocessTtftNs), toInt64(judged.PostprocessNs) - toInt64(judged.PostprocessTtftNs)) AS PostprocessNs,
  w * multiIf(m = 1, toInt64(judged.StreamOutNs), m = 2, toInt64(judged.StreamOutTtftNs), toInt64(judged.StreamOutNs) - toInt64(judged.StreamOutTtftNs)) AS StreamOutNs,
  w * multiIf(m = 1, toInt64(judged.FinalizeNs), m = 2, toInt64(judged.FinalizeTtftNs), toInt64(judged.FinalizeNs) - toInt64(judged.FinalizeTtftNs)) AS FinalizeNs,
  w * multiIf(m = 1, toInt64(judged.NetworkNs), m = 2, toInt64(judged.NetworkTtftNs), toInt64(judged.NetworkNs) - toInt64(judged.NetworkTtftNs)) AS NetworkNs,
  w * multiIf(m = 1, toInt64(judged.ExternalNs), m = 2, toInt64(judged.ExternalTtftNs), toInt64(judged.ExternalNs) - toInt64(judged.ExternalTtftNs)) AS ExternalNs,
  w * multiIf(m = 1, toInt64(judged.AppNs), m = 2, toInt64(judged.AppTtftNs), toInt64(judged.AppNs) - toInt64(judged.AppTtftNs)) AS AppNs,
  w * multiIf(m = 1, toInt64(judged.CustomNs), m = 2, toInt64(judged.CustomTtftNs), toInt64(judged.CustomNs) - toInt64(judged.CustomTtftNs)) AS CustomNs,
  w * multiIf(m = 1, toInt64(judged.UnexplainedNs), m = 2, toInt64(judged.UnexplainedTtftNs), toInt64(judged.UnexplainedNs) - toInt64(judged.UnexplainedTtftNs)) AS UnexplainedNs
FROM judged ARRAY JOIN arrayFilter(x -> x = 1 OR (x = 2 AND isNotNull(TtftNs)) OR (x = 3 AND isNotNull(TpotNs)), [1, 2, 3]) AS m
WHERE Kind = 'request' AND NOT has(Flags, 'clock_fault') AND NOT Summed;
