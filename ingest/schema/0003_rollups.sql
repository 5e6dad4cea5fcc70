-- Log-bucket histograms with stage sums: mergeable at 1 % relative error, and a percentile's attribution comes from the same rows.
CREATE TABLE rollup_1m (
  Metric LowCardinality(String) COMMENT 'duration, ttft or tpot; the stage sums are those of that interval',
  Service LowCardinality(String),
  Route LowCardinality(String),
  Model LowCardinality(String),
  Version LowCardinality(String),
  Outcome LowCardinality(String),
  Streaming LowCardinality(String),
  IsRoot Bool,
  Time DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
  K Int32 COMMENT 'ceil(log_1.02 ns)',
  N SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  SumNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetInNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AuthNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RateLimitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AdmissionNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ParseNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GuardrailNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CacheLookupNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RouteNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DispatchNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TemplateNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  MmEncodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineSubmitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  QueueNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GrammarNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvLoadNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvTransferNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  BatchWaitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PrefillNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ForwardNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DecodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PreemptedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineReturnNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DetokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PostprocessNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  StreamOutNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  FinalizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetworkNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ExternalNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AppNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CustomNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  UnexplainedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1))
) ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(Time)
ORDER BY (Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K)
SETTINGS non_replicated_deduplication_window = 100000, allow_suspicious_primary_key = 0;

CREATE MATERIALIZED VIEW rollup_1m_duration_mv TO rollup_1m AS
SELECT 'duration' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfMinute(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(DurationNs, 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(DurationNs)) AS SumNs,
  sum(w * toInt64(NetInNs)) AS NetInNs, sum(w * toInt64(AuthNs)) AS AuthNs, sum(w * toInt64(RateLimitNs)) AS RateLimitNs, sum(w * toInt64(AdmissionNs)) AS AdmissionNs, sum(w * toInt64(ParseNs)) AS ParseNs, sum(w * toInt64(GuardrailNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupNs)) AS CacheLookupNs, sum(w * toInt64(RouteNs)) AS RouteNs, sum(w * toInt64(DispatchNs)) AS DispatchNs, sum(w * toInt64(TemplateNs)) AS TemplateNs, sum(w * toInt64(TokenizeNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitNs)) AS EngineSubmitNs, sum(w * toInt64(QueueNs)) AS QueueNs, sum(w * toInt64(GrammarNs)) AS GrammarNs, sum(w * toInt64(KvLoadNs)) AS KvLoadNs, sum(w * toInt64(KvTransferNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitNs)) AS BatchWaitNs, sum(w * toInt64(PrefillNs)) AS PrefillNs, sum(w * toInt64(ForwardNs)) AS ForwardNs, sum(w * toInt64(DecodeNs)) AS DecodeNs, sum(w * toInt64(PreemptedNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessNs)) AS PostprocessNs, sum(w * toInt64(StreamOutNs)) AS StreamOutNs, sum(w * toInt64(FinalizeNs)) AS FinalizeNs, sum(w * toInt64(NetworkNs)) AS NetworkNs, sum(w * toInt64(ExternalNs)) AS ExternalNs, sum(w * toInt64(AppNs)) AS AppNs, sum(w * toInt64(CustomNs)) AS CustomNs, sum(w * toInt64(UnexplainedNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE MATERIALIZED VIEW rollup_1m_ttft_mv TO rollup_1m AS
SELECT 'ttft' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfMinute(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TtftNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TtftNs))) AS SumNs,
  sum(w * toInt64(NetInTtftNs)) AS NetInNs, sum(w * toInt64(AuthTtftNs)) AS AuthNs, sum(w * toInt64(RateLimitTtftNs)) AS RateLimitNs, sum(w * toInt64(AdmissionTtftNs)) AS AdmissionNs, sum(w * toInt64(ParseTtftNs)) AS ParseNs, sum(w * toInt64(GuardrailTtftNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupTtftNs)) AS CacheLookupNs, sum(w * toInt64(RouteTtftNs)) AS RouteNs, sum(w * toInt64(DispatchTtftNs)) AS DispatchNs, sum(w * toInt64(TemplateTtftNs)) AS TemplateNs, sum(w * toInt64(TokenizeTtftNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeTtftNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitTtftNs)) AS EngineSubmitNs, sum(w * toInt64(QueueTtftNs)) AS QueueNs, sum(w * toInt64(GrammarTtftNs)) AS GrammarNs, sum(w * toInt64(KvLoadTtftNs)) AS KvLoadNs, sum(w * toInt64(KvTransferTtftNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitTtftNs)) AS BatchWaitNs, sum(w * toInt64(PrefillTtftNs)) AS PrefillNs, sum(w * toInt64(ForwardTtftNs)) AS ForwardNs, sum(w * toInt64(DecodeTtftNs)) AS DecodeNs, sum(w * toInt64(PreemptedTtftNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnTtftNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeTtftNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessTtftNs)) AS PostprocessNs, sum(w * toInt64(StreamOutTtftNs)) AS StreamOutNs, sum(w * toInt64(FinalizeTtftNs)) AS FinalizeNs, sum(w * toInt64(NetworkTtftNs)) AS NetworkNs, sum(w * toInt64(ExternalTtftNs)) AS ExternalNs, sum(w * toInt64(AppTtftNs)) AS AppNs, sum(w * toInt64(CustomTtftNs)) AS CustomNs, sum(w * toInt64(UnexplainedTtftNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TtftNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE MATERIALIZED VIEW rollup_1m_tpot_mv TO rollup_1m AS
SELECT 'tpot' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfMinute(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TpotNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TpotNs))) AS SumNs,
  sum(w * (toInt64(NetInNs) - toInt64(NetInTtftNs))) AS NetInNs, sum(w * (toInt64(AuthNs) - toInt64(AuthTtftNs))) AS AuthNs, sum(w * (toInt64(RateLimitNs) - toInt64(RateLimitTtftNs))) AS RateLimitNs, sum(w * (toInt64(AdmissionNs) - toInt64(AdmissionTtftNs))) AS AdmissionNs, sum(w * (toInt64(ParseNs) - toInt64(ParseTtftNs))) AS ParseNs, sum(w * (toInt64(GuardrailNs) - toInt64(GuardrailTtftNs))) AS GuardrailNs, sum(w * (toInt64(CacheLookupNs) - toInt64(CacheLookupTtftNs))) AS CacheLookupNs, sum(w * (toInt64(RouteNs) - toInt64(RouteTtftNs))) AS RouteNs, sum(w * (toInt64(DispatchNs) - toInt64(DispatchTtftNs))) AS DispatchNs, sum(w * (toInt64(TemplateNs) - toInt64(TemplateTtftNs))) AS TemplateNs, sum(w * (toInt64(TokenizeNs) - toInt64(TokenizeTtftNs))) AS TokenizeNs, sum(w * (toInt64(MmEncodeNs) - toInt64(MmEncodeTtftNs))) AS MmEncodeNs, sum(w * (toInt64(EngineSubmitNs) - toInt64(EngineSubmitTtftNs))) AS EngineSubmitNs, sum(w * (toInt64(QueueNs) - toInt64(QueueTtftNs))) AS QueueNs, sum(w * (toInt64(GrammarNs) - toInt64(GrammarTtftNs))) AS GrammarNs, sum(w * (toInt64(KvLoadNs) - toInt64(KvLoadTtftNs))) AS KvLoadNs, sum(w * (toInt64(KvTransferNs) - toInt64(KvTransferTtftNs))) AS KvTransferNs, sum(w * (toInt64(BatchWaitNs) - toInt64(BatchWaitTtftNs))) AS BatchWaitNs, sum(w * (toInt64(PrefillNs) - toInt64(PrefillTtftNs))) AS PrefillNs, sum(w * (toInt64(ForwardNs) - toInt64(ForwardTtftNs))) AS ForwardNs, sum(w * (toInt64(DecodeNs) - toInt64(DecodeTtftNs))) AS DecodeNs, sum(w * (toInt64(PreemptedNs) - toInt64(PreemptedTtftNs))) AS PreemptedNs, sum(w * (toInt64(EngineReturnNs) - toInt64(EngineReturnTtftNs))) AS EngineReturnNs, sum(w * (toInt64(DetokenizeNs) - toInt64(DetokenizeTtftNs))) AS DetokenizeNs, sum(w * (toInt64(PostprocessNs) - toInt64(PostprocessTtftNs))) AS PostprocessNs, sum(w * (toInt64(StreamOutNs) - toInt64(StreamOutTtftNs))) AS StreamOutNs, sum(w * (toInt64(FinalizeNs) - toInt64(FinalizeTtftNs))) AS FinalizeNs, sum(w * (toInt64(NetworkNs) - toInt64(NetworkTtftNs))) AS NetworkNs, sum(w * (toInt64(ExternalNs) - toInt64(ExternalTtftNs))) AS ExternalNs, sum(w * (toInt64(AppNs) - toInt64(AppTtftNs))) AS AppNs, sum(w * (toInt64(CustomNs) - toInt64(CustomTtftNs))) AS CustomNs, sum(w * (toInt64(UnexplainedNs) - toInt64(UnexplainedTtftNs))) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TpotNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE TABLE rollup_1h (
  Metric LowCardinality(String) COMMENT 'duration, ttft or tpot; the stage sums are those of that interval',
  Service LowCardinality(String),
  Route LowCardinality(String),
  Model LowCardinality(String),
  Version LowCardinality(String),
  Outcome LowCardinality(String),
  Streaming LowCardinality(String),
  IsRoot Bool,
  Time DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
  K Int32 COMMENT 'ceil(log_1.02 ns)',
  N SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  SumNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetInNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AuthNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RateLimitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AdmissionNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ParseNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GuardrailNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CacheLookupNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RouteNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DispatchNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TemplateNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  MmEncodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineSubmitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  QueueNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GrammarNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvLoadNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvTransferNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  BatchWaitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PrefillNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ForwardNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DecodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PreemptedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineReturnNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DetokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PostprocessNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  StreamOutNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  FinalizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetworkNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ExternalNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AppNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CustomNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  UnexplainedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1))
) ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(Time)
ORDER BY (Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K)
SETTINGS non_replicated_deduplication_window = 100000, allow_suspicious_primary_key = 0;

CREATE MATERIALIZED VIEW rollup_1h_duration_mv TO rollup_1h AS
SELECT 'duration' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfHour(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(DurationNs, 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(DurationNs)) AS SumNs,
  sum(w * toInt64(NetInNs)) AS NetInNs, sum(w * toInt64(AuthNs)) AS AuthNs, sum(w * toInt64(RateLimitNs)) AS RateLimitNs, sum(w * toInt64(AdmissionNs)) AS AdmissionNs, sum(w * toInt64(ParseNs)) AS ParseNs, sum(w * toInt64(GuardrailNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupNs)) AS CacheLookupNs, sum(w * toInt64(RouteNs)) AS RouteNs, sum(w * toInt64(DispatchNs)) AS DispatchNs, sum(w * toInt64(TemplateNs)) AS TemplateNs, sum(w * toInt64(TokenizeNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitNs)) AS EngineSubmitNs, sum(w * toInt64(QueueNs)) AS QueueNs, sum(w * toInt64(GrammarNs)) AS GrammarNs, sum(w * toInt64(KvLoadNs)) AS KvLoadNs, sum(w * toInt64(KvTransferNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitNs)) AS BatchWaitNs, sum(w * toInt64(PrefillNs)) AS PrefillNs, sum(w * toInt64(ForwardNs)) AS ForwardNs, sum(w * toInt64(DecodeNs)) AS DecodeNs, sum(w * toInt64(PreemptedNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessNs)) AS PostprocessNs, sum(w * toInt64(StreamOutNs)) AS StreamOutNs, sum(w * toInt64(FinalizeNs)) AS FinalizeNs, sum(w * toInt64(NetworkNs)) AS NetworkNs, sum(w * toInt64(ExternalNs)) AS ExternalNs, sum(w * toInt64(AppNs)) AS AppNs, sum(w * toInt64(CustomNs)) AS CustomNs, sum(w * toInt64(UnexplainedNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE MATERIALIZED VIEW rollup_1h_ttft_mv TO rollup_1h AS
SELECT 'ttft' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfHour(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TtftNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TtftNs))) AS SumNs,
  sum(w * toInt64(NetInTtftNs)) AS NetInNs, sum(w * toInt64(AuthTtftNs)) AS AuthNs, sum(w * toInt64(RateLimitTtftNs)) AS RateLimitNs, sum(w * toInt64(AdmissionTtftNs)) AS AdmissionNs, sum(w * toInt64(ParseTtftNs)) AS ParseNs, sum(w * toInt64(GuardrailTtftNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupTtftNs)) AS CacheLookupNs, sum(w * toInt64(RouteTtftNs)) AS RouteNs, sum(w * toInt64(DispatchTtftNs)) AS DispatchNs, sum(w * toInt64(TemplateTtftNs)) AS TemplateNs, sum(w * toInt64(TokenizeTtftNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeTtftNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitTtftNs)) AS EngineSubmitNs, sum(w * toInt64(QueueTtftNs)) AS QueueNs, sum(w * toInt64(GrammarTtftNs)) AS GrammarNs, sum(w * toInt64(KvLoadTtftNs)) AS KvLoadNs, sum(w * toInt64(KvTransferTtftNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitTtftNs)) AS BatchWaitNs, sum(w * toInt64(PrefillTtftNs)) AS PrefillNs, sum(w * toInt64(ForwardTtftNs)) AS ForwardNs, sum(w * toInt64(DecodeTtftNs)) AS DecodeNs, sum(w * toInt64(PreemptedTtftNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnTtftNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeTtftNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessTtftNs)) AS PostprocessNs, sum(w * toInt64(StreamOutTtftNs)) AS StreamOutNs, sum(w * toInt64(FinalizeTtftNs)) AS FinalizeNs, sum(w * toInt64(NetworkTtftNs)) AS NetworkNs, sum(w * toInt64(ExternalTtftNs)) AS ExternalNs, sum(w * toInt64(AppTtftNs)) AS AppNs, sum(w * toInt64(CustomTtftNs)) AS CustomNs, sum(w * toInt64(UnexplainedTtftNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TtftNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE MATERIALIZED VIEW rollup_1h_tpot_mv TO rollup_1h AS
SELECT 'tpot' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfHour(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TpotNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TpotNs))) AS SumNs,
  sum(w * (toInt64(NetInNs) - toInt64(NetInTtftNs))) AS NetInNs, sum(w * (toInt64(AuthNs) - toInt64(AuthTtftNs))) AS AuthNs, sum(w * (toInt64(RateLimitNs) - toInt64(RateLimitTtftNs))) AS RateLimitNs, sum(w * (toInt64(AdmissionNs) - toInt64(AdmissionTtftNs))) AS AdmissionNs, sum(w * (toInt64(ParseNs) - toInt64(ParseTtftNs))) AS ParseNs, sum(w * (toInt64(GuardrailNs) - toInt64(GuardrailTtftNs))) AS GuardrailNs, sum(w * (toInt64(CacheLookupNs) - toInt64(CacheLookupTtftNs))) AS CacheLookupNs, sum(w * (toInt64(RouteNs) - toInt64(RouteTtftNs))) AS RouteNs, sum(w * (toInt64(DispatchNs) - toInt64(DispatchTtftNs))) AS DispatchNs, sum(w * (toInt64(TemplateNs) - toInt64(TemplateTtftNs))) AS TemplateNs, sum(w * (toInt64(TokenizeNs) - toInt64(TokenizeTtftNs))) AS TokenizeNs, sum(w * (toInt64(MmEncodeNs) - toInt64(MmEncodeTtftNs))) AS MmEncodeNs, sum(w * (toInt64(EngineSubmitNs) - toInt64(EngineSubmitTtftNs))) AS EngineSubmitNs, sum(w * (toInt64(QueueNs) - toInt64(QueueTtftNs))) AS QueueNs, sum(w * (toInt64(GrammarNs) - toInt64(GrammarTtftNs))) AS GrammarNs, sum(w * (toInt64(KvLoadNs) - toInt64(KvLoadTtftNs))) AS KvLoadNs, sum(w * (toInt64(KvTransferNs) - toInt64(KvTransferTtftNs))) AS KvTransferNs, sum(w * (toInt64(BatchWaitNs) - toInt64(BatchWaitTtftNs))) AS BatchWaitNs, sum(w * (toInt64(PrefillNs) - toInt64(PrefillTtftNs))) AS PrefillNs, sum(w * (toInt64(ForwardNs) - toInt64(ForwardTtftNs))) AS ForwardNs, sum(w * (toInt64(DecodeNs) - toInt64(DecodeTtftNs))) AS DecodeNs, sum(w * (toInt64(PreemptedNs) - toInt64(PreemptedTtftNs))) AS PreemptedNs, sum(w * (toInt64(EngineReturnNs) - toInt64(EngineReturnTtftNs))) AS EngineReturnNs, sum(w * (toInt64(DetokenizeNs) - toInt64(DetokenizeTtftNs))) AS DetokenizeNs, sum(w * (toInt64(PostprocessNs) - toInt64(PostprocessTtftNs))) AS PostprocessNs, sum(w * (toInt64(StreamOutNs) - toInt64(StreamOutTtftNs))) AS StreamOutNs, sum(w * (toInt64(FinalizeNs) - toInt64(FinalizeTtftNs))) AS FinalizeNs, sum(w * (toInt64(NetworkNs) - toInt64(NetworkTtftNs))) AS NetworkNs, sum(w * (toInt64(ExternalNs) - toInt64(ExternalTtftNs))) AS ExternalNs, sum(w * (toInt64(AppNs) - toInt64(AppTtftNs))) AS AppNs, sum(w * (toInt64(CustomNs) - toInt64(CustomTtftNs))) AS CustomNs, sum(w * (toInt64(UnexplainedNs) - toInt64(UnexplainedTtftNs))) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TpotNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE TABLE rollup_1d (
  Metric LowCardinality(String) COMMENT 'duration, ttft or tpot; the stage sums are those of that interval',
  Service LowCardinality(String),
  Route LowCardinality(String),
  Model LowCardinality(String),
  Version LowCardinality(String),
  Outcome LowCardinality(String),
  Streaming LowCardinality(String),
  IsRoot Bool,
  Time DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
  K Int32 COMMENT 'ceil(log_1.02 ns)',
  N SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  SumNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetInNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AuthNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RateLimitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AdmissionNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ParseNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GuardrailNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CacheLookupNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RouteNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DispatchNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TemplateNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  MmEncodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineSubmitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  QueueNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GrammarNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvLoadNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvTransferNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  BatchWaitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PrefillNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ForwardNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DecodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PreemptedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineReturnNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DetokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PostprocessNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  StreamOutNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  FinalizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetworkNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ExternalNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AppNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CustomNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  UnexplainedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1))
) ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(Time)
ORDER BY (Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K)
SETTINGS non_replicated_deduplication_window = 100000, allow_suspicious_primary_key = 0;

CREATE MATERIALIZED VIEW rollup_1d_duration_mv TO rollup_1d AS
SELECT 'duration' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfDay(End, 'UTC'), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(DurationNs, 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(DurationNs)) AS SumNs,
  sum(w * toInt64(NetInNs)) AS NetInNs, sum(w * toInt64(AuthNs)) AS AuthNs, sum(w * toInt64(RateLimitNs)) AS RateLimitNs, sum(w * toInt64(AdmissionNs)) AS AdmissionNs, sum(w * toInt64(ParseNs)) AS ParseNs, sum(w * toInt64(GuardrailNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupNs)) AS CacheLookupNs, sum(w * toInt64(RouteNs)) AS RouteNs, sum(w * toInt64(DispatchNs)) AS DispatchNs, sum(w * toInt64(TemplateNs)) AS TemplateNs, sum(w * toInt64(TokenizeNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitNs)) AS EngineSubmitNs, sum(w * toInt64(QueueNs)) AS QueueNs, sum(w * toInt64(GrammarNs)) AS GrammarNs, sum(w * toInt64(KvLoadNs)) AS KvLoadNs, sum(w * toInt64(KvTransferNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitNs)) AS BatchWaitNs, sum(w * toInt64(PrefillNs)) AS PrefillNs, sum(w * toInt64(ForwardNs)) AS ForwardNs, sum(w * toInt64(DecodeNs)) AS DecodeNs, sum(w * toInt64(PreemptedNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessNs)) AS PostprocessNs, sum(w * toInt64(StreamOutNs)) AS StreamOutNs, sum(w * toInt64(FinalizeNs)) AS FinalizeNs, sum(w * toInt64(NetworkNs)) AS NetworkNs, sum(w * toInt64(ExternalNs)) AS ExternalNs, sum(w * toInt64(AppNs)) AS AppNs, sum(w * toInt64(CustomNs)) AS CustomNs, sum(w * toInt64(UnexplainedNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE MATERIALIZED VIEW rollup_1d_ttft_mv TO rollup_1d AS
SELECT 'ttft' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfDay(End, 'UTC'), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TtftNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TtftNs))) AS SumNs,
  sum(w * toInt64(NetInTtftNs)) AS NetInNs, sum(w * toInt64(AuthTtftNs)) AS AuthNs, sum(w * toInt64(RateLimitTtftNs)) AS RateLimitNs, sum(w * toInt64(AdmissionTtftNs)) AS AdmissionNs, sum(w * toInt64(ParseTtftNs)) AS ParseNs, sum(w * toInt64(GuardrailTtftNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupTtftNs)) AS CacheLookupNs, sum(w * toInt64(RouteTtftNs)) AS RouteNs, sum(w * toInt64(DispatchTtftNs)) AS DispatchNs, sum(w * toInt64(TemplateTtftNs)) AS TemplateNs, sum(w * toInt64(TokenizeTtftNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeTtftNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitTtftNs)) AS EngineSubmitNs, sum(w * toInt64(QueueTtftNs)) AS QueueNs, sum(w * toInt64(GrammarTtftNs)) AS GrammarNs, sum(w * toInt64(KvLoadTtftNs)) AS KvLoadNs, sum(w * toInt64(KvTransferTtftNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitTtftNs)) AS BatchWaitNs, sum(w * toInt64(PrefillTtftNs)) AS PrefillNs, sum(w * toInt64(ForwardTtftNs)) AS ForwardNs, sum(w * toInt64(DecodeTtftNs)) AS DecodeNs, sum(w * toInt64(PreemptedTtftNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnTtftNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeTtftNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessTtftNs)) AS PostprocessNs, sum(w * toInt64(StreamOutTtftNs)) AS StreamOutNs, sum(w * toInt64(FinalizeTtftNs)) AS FinalizeNs, sum(w * toInt64(NetworkTtftNs)) AS NetworkNs, sum(w * toInt64(ExternalTtftNs)) AS ExternalNs, sum(w * toInt64(AppTtftNs)) AS AppNs, sum(w * toInt64(CustomTtftNs)) AS CustomNs, sum(w * toInt64(UnexplainedTtftNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TtftNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE MATERIALIZED VIEW rollup_1d_tpot_mv TO rollup_1d AS
SELECT 'tpot' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, toDateTime64(toStartOfDay(End, 'UTC'), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TpotNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TpotNs))) AS SumNs,
  sum(w * (toInt64(NetInNs) - toInt64(NetInTtftNs))) AS NetInNs, sum(w * (toInt64(AuthNs) - toInt64(AuthTtftNs))) AS AuthNs, sum(w * (toInt64(RateLimitNs) - toInt64(RateLimitTtftNs))) AS RateLimitNs, sum(w * (toInt64(AdmissionNs) - toInt64(AdmissionTtftNs))) AS AdmissionNs, sum(w * (toInt64(ParseNs) - toInt64(ParseTtftNs))) AS ParseNs, sum(w * (toInt64(GuardrailNs) - toInt64(GuardrailTtftNs))) AS GuardrailNs, sum(w * (toInt64(CacheLookupNs) - toInt64(CacheLookupTtftNs))) AS CacheLookupNs, sum(w * (toInt64(RouteNs) - toInt64(RouteTtftNs))) AS RouteNs, sum(w * (toInt64(DispatchNs) - toInt64(DispatchTtftNs))) AS DispatchNs, sum(w * (toInt64(TemplateNs) - toInt64(TemplateTtftNs))) AS TemplateNs, sum(w * (toInt64(TokenizeNs) - toInt64(TokenizeTtftNs))) AS TokenizeNs, sum(w * (toInt64(MmEncodeNs) - toInt64(MmEncodeTtftNs))) AS MmEncodeNs, sum(w * (toInt64(EngineSubmitNs) - toInt64(EngineSubmitTtftNs))) AS EngineSubmitNs, sum(w * (toInt64(QueueNs) - toInt64(QueueTtftNs))) AS QueueNs, sum(w * (toInt64(GrammarNs) - toInt64(GrammarTtftNs))) AS GrammarNs, sum(w * (toInt64(KvLoadNs) - toInt64(KvLoadTtftNs))) AS KvLoadNs, sum(w * (toInt64(KvTransferNs) - toInt64(KvTransferTtftNs))) AS KvTransferNs, sum(w * (toInt64(BatchWaitNs) - toInt64(BatchWaitTtftNs))) AS BatchWaitNs, sum(w * (toInt64(PrefillNs) - toInt64(PrefillTtftNs))) AS PrefillNs, sum(w * (toInt64(ForwardNs) - toInt64(ForwardTtftNs))) AS ForwardNs, sum(w * (toInt64(DecodeNs) - toInt64(DecodeTtftNs))) AS DecodeNs, sum(w * (toInt64(PreemptedNs) - toInt64(PreemptedTtftNs))) AS PreemptedNs, sum(w * (toInt64(EngineReturnNs) - toInt64(EngineReturnTtftNs))) AS EngineReturnNs, sum(w * (toInt64(DetokenizeNs) - toInt64(DetokenizeTtftNs))) AS DetokenizeNs, sum(w * (toInt64(PostprocessNs) - toInt64(PostprocessTtftNs))) AS PostprocessNs, sum(w * (toInt64(StreamOutNs) - toInt64(StreamOutTtftNs))) AS StreamOutNs, sum(w * (toInt64(FinalizeNs) - toInt64(FinalizeTtftNs))) AS FinalizeNs, sum(w * (toInt64(NetworkNs) - toInt64(NetworkTtftNs))) AS NetworkNs, sum(w * (toInt64(ExternalNs) - toInt64(ExternalTtftNs))) AS ExternalNs, sum(w * (toInt64(AppNs) - toInt64(AppTtftNs))) AS AppNs, sum(w * (toInt64(CustomNs) - toInt64(CustomTtftNs))) AS CustomNs, sum(w * (toInt64(UnexplainedNs) - toInt64(UnexplainedTtftNs))) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TpotNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K;

CREATE TABLE strata_5m (
  Metric LowCardinality(String) COMMENT 'duration, ttft or tpot; the stage sums are those of that interval',
  Service LowCardinality(String),
  Route LowCardinality(String),
  Model LowCardinality(String),
  Version LowCardinality(String),
  Outcome LowCardinality(String),
  Streaming LowCardinality(String),
  IsRoot Bool,
  Stratum UInt64,
  Time DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
  K Int32 COMMENT 'ceil(log_1.02 ns)',
  N SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  SumNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetInNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AuthNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RateLimitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AdmissionNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ParseNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GuardrailNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CacheLookupNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RouteNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DispatchNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TemplateNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  MmEncodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineSubmitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  QueueNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GrammarNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvLoadNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvTransferNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  BatchWaitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PrefillNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ForwardNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DecodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PreemptedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineReturnNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DetokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PostprocessNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  StreamOutNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  FinalizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetworkNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ExternalNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AppNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CustomNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  UnexplainedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1))
) ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(Time)
ORDER BY (Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, Time, K)
SETTINGS non_replicated_deduplication_window = 100000, allow_suspicious_primary_key = 0;

CREATE MATERIALIZED VIEW strata_5m_duration_mv TO strata_5m AS
SELECT 'duration' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, toDateTime64(toStartOfFiveMinutes(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(DurationNs, 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(DurationNs)) AS SumNs,
  sum(w * toInt64(NetInNs)) AS NetInNs, sum(w * toInt64(AuthNs)) AS AuthNs, sum(w * toInt64(RateLimitNs)) AS RateLimitNs, sum(w * toInt64(AdmissionNs)) AS AdmissionNs, sum(w * toInt64(ParseNs)) AS ParseNs, sum(w * toInt64(GuardrailNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupNs)) AS CacheLookupNs, sum(w * toInt64(RouteNs)) AS RouteNs, sum(w * toInt64(DispatchNs)) AS DispatchNs, sum(w * toInt64(TemplateNs)) AS TemplateNs, sum(w * toInt64(TokenizeNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitNs)) AS EngineSubmitNs, sum(w * toInt64(QueueNs)) AS QueueNs, sum(w * toInt64(GrammarNs)) AS GrammarNs, sum(w * toInt64(KvLoadNs)) AS KvLoadNs, sum(w * toInt64(KvTransferNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitNs)) AS BatchWaitNs, sum(w * toInt64(PrefillNs)) AS PrefillNs, sum(w * toInt64(ForwardNs)) AS ForwardNs, sum(w * toInt64(DecodeNs)) AS DecodeNs, sum(w * toInt64(PreemptedNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessNs)) AS PostprocessNs, sum(w * toInt64(StreamOutNs)) AS StreamOutNs, sum(w * toInt64(FinalizeNs)) AS FinalizeNs, sum(w * toInt64(NetworkNs)) AS NetworkNs, sum(w * toInt64(ExternalNs)) AS ExternalNs, sum(w * toInt64(AppNs)) AS AppNs, sum(w * toInt64(CustomNs)) AS CustomNs, sum(w * toInt64(UnexplainedNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, Time, K;

CREATE MATERIALIZED VIEW strata_5m_ttft_mv TO strata_5m AS
SELECT 'ttft' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, toDateTime64(toStartOfFiveMinutes(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TtftNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TtftNs))) AS SumNs,
  sum(w * toInt64(NetInTtftNs)) AS NetInNs, sum(w * toInt64(AuthTtftNs)) AS AuthNs, sum(w * toInt64(RateLimitTtftNs)) AS RateLimitNs, sum(w * toInt64(AdmissionTtftNs)) AS AdmissionNs, sum(w * toInt64(ParseTtftNs)) AS ParseNs, sum(w * toInt64(GuardrailTtftNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupTtftNs)) AS CacheLookupNs, sum(w * toInt64(RouteTtftNs)) AS RouteNs, sum(w * toInt64(DispatchTtftNs)) AS DispatchNs, sum(w * toInt64(TemplateTtftNs)) AS TemplateNs, sum(w * toInt64(TokenizeTtftNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeTtftNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitTtftNs)) AS EngineSubmitNs, sum(w * toInt64(QueueTtftNs)) AS QueueNs, sum(w * toInt64(GrammarTtftNs)) AS GrammarNs, sum(w * toInt64(KvLoadTtftNs)) AS KvLoadNs, sum(w * toInt64(KvTransferTtftNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitTtftNs)) AS BatchWaitNs, sum(w * toInt64(PrefillTtftNs)) AS PrefillNs, sum(w * toInt64(ForwardTtftNs)) AS ForwardNs, sum(w * toInt64(DecodeTtftNs)) AS DecodeNs, sum(w * toInt64(PreemptedTtftNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnTtftNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeTtftNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessTtftNs)) AS PostprocessNs, sum(w * toInt64(StreamOutTtftNs)) AS StreamOutNs, sum(w * toInt64(FinalizeTtftNs)) AS FinalizeNs, sum(w * toInt64(NetworkTtftNs)) AS NetworkNs, sum(w * toInt64(ExternalTtftNs)) AS ExternalNs, sum(w * toInt64(AppTtftNs)) AS AppNs, sum(w * toInt64(CustomTtftNs)) AS CustomNs, sum(w * toInt64(UnexplainedTtftNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TtftNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, Time, K;

CREATE MATERIALIZED VIEW strata_5m_tpot_mv TO strata_5m AS
SELECT 'tpot' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, toDateTime64(toStartOfFiveMinutes(End), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TpotNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TpotNs))) AS SumNs,
  sum(w * (toInt64(NetInNs) - toInt64(NetInTtftNs))) AS NetInNs, sum(w * (toInt64(AuthNs) - toInt64(AuthTtftNs))) AS AuthNs, sum(w * (toInt64(RateLimitNs) - toInt64(RateLimitTtftNs))) AS RateLimitNs, sum(w * (toInt64(AdmissionNs) - toInt64(AdmissionTtftNs))) AS AdmissionNs, sum(w * (toInt64(ParseNs) - toInt64(ParseTtftNs))) AS ParseNs, sum(w * (toInt64(GuardrailNs) - toInt64(GuardrailTtftNs))) AS GuardrailNs, sum(w * (toInt64(CacheLookupNs) - toInt64(CacheLookupTtftNs))) AS CacheLookupNs, sum(w * (toInt64(RouteNs) - toInt64(RouteTtftNs))) AS RouteNs, sum(w * (toInt64(DispatchNs) - toInt64(DispatchTtftNs))) AS DispatchNs, sum(w * (toInt64(TemplateNs) - toInt64(TemplateTtftNs))) AS TemplateNs, sum(w * (toInt64(TokenizeNs) - toInt64(TokenizeTtftNs))) AS TokenizeNs, sum(w * (toInt64(MmEncodeNs) - toInt64(MmEncodeTtftNs))) AS MmEncodeNs, sum(w * (toInt64(EngineSubmitNs) - toInt64(EngineSubmitTtftNs))) AS EngineSubmitNs, sum(w * (toInt64(QueueNs) - toInt64(QueueTtftNs))) AS QueueNs, sum(w * (toInt64(GrammarNs) - toInt64(GrammarTtftNs))) AS GrammarNs, sum(w * (toInt64(KvLoadNs) - toInt64(KvLoadTtftNs))) AS KvLoadNs, sum(w * (toInt64(KvTransferNs) - toInt64(KvTransferTtftNs))) AS KvTransferNs, sum(w * (toInt64(BatchWaitNs) - toInt64(BatchWaitTtftNs))) AS BatchWaitNs, sum(w * (toInt64(PrefillNs) - toInt64(PrefillTtftNs))) AS PrefillNs, sum(w * (toInt64(ForwardNs) - toInt64(ForwardTtftNs))) AS ForwardNs, sum(w * (toInt64(DecodeNs) - toInt64(DecodeTtftNs))) AS DecodeNs, sum(w * (toInt64(PreemptedNs) - toInt64(PreemptedTtftNs))) AS PreemptedNs, sum(w * (toInt64(EngineReturnNs) - toInt64(EngineReturnTtftNs))) AS EngineReturnNs, sum(w * (toInt64(DetokenizeNs) - toInt64(DetokenizeTtftNs))) AS DetokenizeNs, sum(w * (toInt64(PostprocessNs) - toInt64(PostprocessTtftNs))) AS PostprocessNs, sum(w * (toInt64(StreamOutNs) - toInt64(StreamOutTtftNs))) AS StreamOutNs, sum(w * (toInt64(FinalizeNs) - toInt64(FinalizeTtftNs))) AS FinalizeNs, sum(w * (toInt64(NetworkNs) - toInt64(NetworkTtftNs))) AS NetworkNs, sum(w * (toInt64(ExternalNs) - toInt64(ExternalTtftNs))) AS ExternalNs, sum(w * (toInt64(AppNs) - toInt64(AppTtftNs))) AS AppNs, sum(w * (toInt64(CustomNs) - toInt64(CustomTtftNs))) AS CustomNs, sum(w * (toInt64(UnexplainedNs) - toInt64(UnexplainedTtftNs))) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TpotNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, Time, K;

CREATE TABLE strata_1d (
  Metric LowCardinality(String) COMMENT 'duration, ttft or tpot; the stage sums are those of that interval',
  Service LowCardinality(String),
  Route LowCardinality(String),
  Model LowCardinality(String),
  Version LowCardinality(String),
  Outcome LowCardinality(String),
  Streaming LowCardinality(String),
  IsRoot Bool,
  Stratum UInt64,
  Time DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
  K Int32 COMMENT 'ceil(log_1.02 ns)',
  N SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  SumNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetInNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AuthNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RateLimitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AdmissionNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ParseNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GuardrailNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CacheLookupNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  RouteNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DispatchNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TemplateNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  TokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  MmEncodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineSubmitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  QueueNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  GrammarNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvLoadNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  KvTransferNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  BatchWaitNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PrefillNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ForwardNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DecodeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PreemptedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  EngineReturnNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  DetokenizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  PostprocessNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  StreamOutNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  FinalizeNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  NetworkNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  ExternalNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  AppNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  CustomNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
  UnexplainedNs SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1))
) ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(Time)
ORDER BY (Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, Time, K)
SETTINGS non_replicated_deduplication_window = 100000, allow_suspicious_primary_key = 0;

CREATE MATERIALIZED VIEW strata_1d_duration_mv TO strata_1d AS
SELECT 'duration' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, toDateTime64(toStartOfDay(End, 'UTC'), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(DurationNs, 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(DurationNs)) AS SumNs,
  sum(w * toInt64(NetInNs)) AS NetInNs, sum(w * toInt64(AuthNs)) AS AuthNs, sum(w * toInt64(RateLimitNs)) AS RateLimitNs, sum(w * toInt64(AdmissionNs)) AS AdmissionNs, sum(w * toInt64(ParseNs)) AS ParseNs, sum(w * toInt64(GuardrailNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupNs)) AS CacheLookupNs, sum(w * toInt64(RouteNs)) AS RouteNs, sum(w * toInt64(DispatchNs)) AS DispatchNs, sum(w * toInt64(TemplateNs)) AS TemplateNs, sum(w * toInt64(TokenizeNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitNs)) AS EngineSubmitNs, sum(w * toInt64(QueueNs)) AS QueueNs, sum(w * toInt64(GrammarNs)) AS GrammarNs, sum(w * toInt64(KvLoadNs)) AS KvLoadNs, sum(w * toInt64(KvTransferNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitNs)) AS BatchWaitNs, sum(w * toInt64(PrefillNs)) AS PrefillNs, sum(w * toInt64(ForwardNs)) AS ForwardNs, sum(w * toInt64(DecodeNs)) AS DecodeNs, sum(w * toInt64(PreemptedNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessNs)) AS PostprocessNs, sum(w * toInt64(StreamOutNs)) AS StreamOutNs, sum(w * toInt64(FinalizeNs)) AS FinalizeNs, sum(w * toInt64(NetworkNs)) AS NetworkNs, sum(w * toInt64(ExternalNs)) AS ExternalNs, sum(w * toInt64(AppNs)) AS AppNs, sum(w * toInt64(CustomNs)) AS CustomNs, sum(w * toInt64(UnexplainedNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, Time, K;

CREATE MATERIALIZED VIEW strata_1d_ttft_mv TO strata_1d AS
SELECT 'ttft' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, toDateTime64(toStartOfDay(End, 'UTC'), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TtftNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TtftNs))) AS SumNs,
  sum(w * toInt64(NetInTtftNs)) AS NetInNs, sum(w * toInt64(AuthTtftNs)) AS AuthNs, sum(w * toInt64(RateLimitTtftNs)) AS RateLimitNs, sum(w * toInt64(AdmissionTtftNs)) AS AdmissionNs, sum(w * toInt64(ParseTtftNs)) AS ParseNs, sum(w * toInt64(GuardrailTtftNs)) AS GuardrailNs, sum(w * toInt64(CacheLookupTtftNs)) AS CacheLookupNs, sum(w * toInt64(RouteTtftNs)) AS RouteNs, sum(w * toInt64(DispatchTtftNs)) AS DispatchNs, sum(w * toInt64(TemplateTtftNs)) AS TemplateNs, sum(w * toInt64(TokenizeTtftNs)) AS TokenizeNs, sum(w * toInt64(MmEncodeTtftNs)) AS MmEncodeNs, sum(w * toInt64(EngineSubmitTtftNs)) AS EngineSubmitNs, sum(w * toInt64(QueueTtftNs)) AS QueueNs, sum(w * toInt64(GrammarTtftNs)) AS GrammarNs, sum(w * toInt64(KvLoadTtftNs)) AS KvLoadNs, sum(w * toInt64(KvTransferTtftNs)) AS KvTransferNs, sum(w * toInt64(BatchWaitTtftNs)) AS BatchWaitNs, sum(w * toInt64(PrefillTtftNs)) AS PrefillNs, sum(w * toInt64(ForwardTtftNs)) AS ForwardNs, sum(w * toInt64(DecodeTtftNs)) AS DecodeNs, sum(w * toInt64(PreemptedTtftNs)) AS PreemptedNs, sum(w * toInt64(EngineReturnTtftNs)) AS EngineReturnNs, sum(w * toInt64(DetokenizeTtftNs)) AS DetokenizeNs, sum(w * toInt64(PostprocessTtftNs)) AS PostprocessNs, sum(w * toInt64(StreamOutTtftNs)) AS StreamOutNs, sum(w * toInt64(FinalizeTtftNs)) AS FinalizeNs, sum(w * toInt64(NetworkTtftNs)) AS NetworkNs, sum(w * toInt64(ExternalTtftNs)) AS ExternalNs, sum(w * toInt64(AppTtftNs)) AS AppNs, sum(w * toInt64(CustomTtftNs)) AS CustomNs, sum(w * toInt64(UnexplainedTtftNs)) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TtftNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, Time, K;

CREATE MATERIALIZED VIEW strata_1d_tpot_mv TO strata_1d AS
SELECT 'tpot' AS Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, toDateTime64(toStartOfDay(End, 'UTC'), 0, 'UTC') AS Time,
  toInt32(ceil(log(greatest(assumeNotNull(TpotNs), 1)) / log(1.02))) AS K, sum(w) AS N, sum(w * toInt64(assumeNotNull(TpotNs))) AS SumNs,
  sum(w * (toInt64(NetInNs) - toInt64(NetInTtftNs))) AS NetInNs, sum(w * (toInt64(AuthNs) - toInt64(AuthTtftNs))) AS AuthNs, sum(w * (toInt64(RateLimitNs) - toInt64(RateLimitTtftNs))) AS RateLimitNs, sum(w * (toInt64(AdmissionNs) - toInt64(AdmissionTtftNs))) AS AdmissionNs, sum(w * (toInt64(ParseNs) - toInt64(ParseTtftNs))) AS ParseNs, sum(w * (toInt64(GuardrailNs) - toInt64(GuardrailTtftNs))) AS GuardrailNs, sum(w * (toInt64(CacheLookupNs) - toInt64(CacheLookupTtftNs))) AS CacheLookupNs, sum(w * (toInt64(RouteNs) - toInt64(RouteTtftNs))) AS RouteNs, sum(w * (toInt64(DispatchNs) - toInt64(DispatchTtftNs))) AS DispatchNs, sum(w * (toInt64(TemplateNs) - toInt64(TemplateTtftNs))) AS TemplateNs, sum(w * (toInt64(TokenizeNs) - toInt64(TokenizeTtftNs))) AS TokenizeNs, sum(w * (toInt64(MmEncodeNs) - toInt64(MmEncodeTtftNs))) AS MmEncodeNs, sum(w * (toInt64(EngineSubmitNs) - toInt64(EngineSubmitTtftNs))) AS EngineSubmitNs, sum(w * (toInt64(QueueNs) - toInt64(QueueTtftNs))) AS QueueNs, sum(w * (toInt64(GrammarNs) - toInt64(GrammarTtftNs))) AS GrammarNs, sum(w * (toInt64(KvLoadNs) - toInt64(KvLoadTtftNs))) AS KvLoadNs, sum(w * (toInt64(KvTransferNs) - toInt64(KvTransferTtftNs))) AS KvTransferNs, sum(w * (toInt64(BatchWaitNs) - toInt64(BatchWaitTtftNs))) AS BatchWaitNs, sum(w * (toInt64(PrefillNs) - toInt64(PrefillTtftNs))) AS PrefillNs, sum(w * (toInt64(ForwardNs) - toInt64(ForwardTtftNs))) AS ForwardNs, sum(w * (toInt64(DecodeNs) - toInt64(DecodeTtftNs))) AS DecodeNs, sum(w * (toInt64(PreemptedNs) - toInt64(PreemptedTtftNs))) AS PreemptedNs, sum(w * (toInt64(EngineReturnNs) - toInt64(EngineReturnTtftNs))) AS EngineReturnNs, sum(w * (toInt64(DetokenizeNs) - toInt64(DetokenizeTtftNs))) AS DetokenizeNs, sum(w * (toInt64(PostprocessNs) - toInt64(PostprocessTtftNs))) AS PostprocessNs, sum(w * (toInt64(StreamOutNs) - toInt64(StreamOutTtftNs))) AS StreamOutNs, sum(w * (toInt64(FinalizeNs) - toInt64(FinalizeTtftNs))) AS FinalizeNs, sum(w * (toInt64(NetworkNs) - toInt64(NetworkTtftNs))) AS NetworkNs, sum(w * (toInt64(ExternalNs) - toInt64(ExternalTtftNs))) AS ExternalNs, sum(w * (toInt64(AppNs) - toInt64(AppTtftNs))) AS AppNs, sum(w * (toInt64(CustomNs) - toInt64(CustomTtftNs))) AS CustomNs, sum(w * (toInt64(UnexplainedNs) - toInt64(UnexplainedTtftNs))) AS UnexplainedNs
FROM (SELECT *, toInt64(Sign) * toInt64(SampleWeight) AS w FROM requests WHERE TpotNs IS NOT NULL AND Kind = 'request' AND NOT has(Flags, 'clock_fault'))
GROUP BY Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Stratum, Time, K;

