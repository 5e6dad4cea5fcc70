-- What clients say they had to drop: the scope attribute `tailtrace.dropped`, "reason:count,...", counted since the instance began.
CREATE TABLE client_losses (
  Minute DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)),
  Service LowCardinality(String),
  Instance String CODEC(ZSTD(1)),
  Signal LowCardinality(String),
  Reason LowCardinality(String),
  Dropped SimpleAggregateFunction(max, UInt64) COMMENT 'since the start of the instance, as of this minute' CODEC(ZSTD(1))
) ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(Minute)
ORDER BY (Service, Instance, Signal, Reason, Minute)
SETTINGS non_replicated_deduplication_window = 100000;

CREATE MATERIALIZED VIEW client_losses_traces_mv TO client_losses AS
SELECT toDateTime64(toStartOfMinute(now64(3, 'UTC')), 0, 'UTC') AS Minute, Service, Instance, Signal, Reason, max(Count) AS Dropped
FROM (
  SELECT 'traces' AS Signal, Service, Instance, toValidUTF8(replaceRegexpOne(Entry, ':[0-9]*$', '')) AS Reason, toUInt64OrZero(extract(Entry, ':([0-9]*)$')) AS Count
  FROM (
    SELECT toValidUTF8(arrayFirst(a -> a.key = 'service.name', Resource).value.string_value) AS Service,
      toValidUTF8(arrayFirst(a -> a.key = 'service.instance.id', Resource).value.string_value) AS Instance,
      arrayJoin(splitByChar(',', arrayFirst(a -> a.key = 'tailtrace.dropped', Scope).value.string_value)) AS Entry
    FROM (
      SELECT Pair.1 AS Resource, arrayJoin(Pair.2) AS Scope
      FROM (
        SELECT arrayJoin(arrayZip(resource_spans.resource.attributes, resource_spans.scope_spans.scope.attributes)) AS Pair FROM otlp_traces_own
        WHERE has(arrayFlatten(resource_spans.scope_spans.scope.attributes.key), 'tailtrace.dropped')))))
WHERE Count > 0
GROUP BY Minute, Service, Instance, Signal, Reason;

CREATE TABLE otlp_metrics_own AS otlp_metrics ENGINE = Null;

CREATE MATERIALIZED VIEW otlp_metrics_own_mv TO otlp_metrics_own AS
SELECT resource_metrics FROM otlp_metrics
WHERE has(arrayFlatten(resource_metrics.scope_metrics.scope.attributes.key), 'tailtrace.dropped');

CREATE MATERIALIZED VIEW client_losses_metrics_mv TO client_losses AS
SELECT toDateTime64(toStartOfMinute(now64(3, 'UTC')), 0, 'UTC') AS Minute, Service, Instance, Signal, Reason, max(Count) AS Dropped
FROM (
  SELECT 'metrics' AS Signal, Service, Instance, toValidUTF8(replaceRegexpOne(Entry, ':[0-9]*$', '')) AS Reason, toUInt64OrZero(extract(Entry, ':([0-9]*)$')) AS Count
  FROM (
    SELECT toValidUTF8(arrayFirst(a -> a.key = 'service.name', Resource).value.string_value) AS Service,
      toValidUTF8(arrayFirst(a -> a.key = 'service.instance.id', Resource).value.string_value) AS Instance,
      arrayJoin(splitByChar(',', arrayFirst(a -> a.key = 'tailtrace.dropped', Scope).value.string_value)) AS Entry
    FROM (
      SELECT Pair.1 AS Resource, arrayJoin(Pair.2) AS Scope
      FROM (
        SELECT arrayJoin(arrayZip(resource_metrics.resource.attributes, resource_metrics.scope_metrics.scope.attributes)) AS Pair FROM otlp_metrics_own
        WHERE has(arrayFlatten(resource_metrics.scope_metrics.scope.attributes.key), 'tailtrace.dropped')))))
WHERE Count > 0
GROUP BY Minute, Service, Instance, Signal, Reason;

CREATE VIEW client_losses_total AS
SELECT Service, Reason, sum(Latest) AS Dropped, max(SeenAt) AS SeenAt
FROM (
  SELECT Service, Instance, Signal, Reason, max(Dropped) AS Latest, max(Minute) AS SeenAt
  FROM client_losses GROUP BY Service, Instance, Signal, Reason)
GROUP BY Service, Reason;
