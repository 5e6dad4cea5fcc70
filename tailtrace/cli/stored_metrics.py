"""Stored metric points as OTLP/JSON bodies. Integers come back as doubles, attributes as text: so they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tailtrace.cli.stored_pages import Selection, attributes, double, pages

if TYPE_CHECKING:
    from tailtrace.cli.client import ApiClient

POINTS_A_BODY: Final = 2_000
_COMMON: Final = """
ResourceAttributes, ScopeName, ScopeVersion, ScopeAttributes, MetricName, MetricDescription, MetricUnit, Attributes,
toUnixTimestamp64Nano(StartTimeUnix), toUnixTimestamp64Nano(TimeUnix), Flags
"""
_EXEMPLARS: Final = """
arrayMap(t -> toUnixTimestamp64Nano(t), Exemplars.TimeUnix), arrayMap(x -> toString(x), Exemplars.Value),
Exemplars.SpanId, Exemplars.TraceId, Exemplars.FilteredAttributes
"""
_SPREAD: Final = "toString(Count), toString(Sum), toString(Min), toString(Max)"
_COUNTS: Final = "arrayMap(x -> toString(x), {0})"

_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "gauge": ("otel_metrics_gauge", f"0, 0, {_EXEMPLARS}, toString(Value)"),
    "sum": ("otel_metrics_sum", f"AggregationTemporality, IsMonotonic, {_EXEMPLARS}, toString(Value)"),
    "histogram": (
        "otel_metrics_histogram",
        f"AggregationTemporality, 0, {_EXEMPLARS}, {_SPREAD}, {_COUNTS.format('BucketCounts')}, "
        f"{_COUNTS.format('ExplicitBounds')}",
    ),
    "exponentialHistogram": (
        "otel_metrics_exp_histogram",
        f"AggregationTemporality, 0, {_EXEMPLARS}, {_SPREAD}, Scale, toString(ZeroCount), PositiveOffset, "
        f"{_COUNTS.format('PositiveBucketCounts')}, NegativeOffset, {_COUNTS.format('NegativeBucketCounts')}",
    ),
    "summary": (
        "otel_metrics_summary",
        f"0, 0, [], [], [], [], [], toString(Count), toString(Sum), {_COUNTS.format('ValueAtQuantiles.Quantile')}, "
        f"{_COUNTS.format('ValueAtQuantiles.Value')}",
    ),
}  # fmt: skip
"""Kind of metric: its table, and the columns after the common ones (temporality, monotonic, exemplars, values)."""


def bodies(api: ApiClient, selection: Selection) -> Iterator[dict[str, Any]]:
    """Export requests of at most 2,000 points, one kind of metric after the other, each in order of time."""
    for kind, (table, columns) in _KINDS.items():
        for rows in pages(api, table, "TimeUnix", f"{_COMMON}, {columns}", selection):
            for start in range(0, len(rows), POINTS_A_BODY):
                yield _body(kind, rows[start : start + POINTS_A_BODY])


def count(body: dict[str, Any]) -> int:
    """Points of a body."""
    scopes = chain.from_iterable(each["scopeMetrics"] for each in body["resourceMetrics"])
    metrics = chain.from_iterable(scope["metrics"] for scope in scopes)
    return sum(len(metric[kind]["dataPoints"]) for metric in metrics for kind in _KINDS if kind in metric)


def _body(kind: str, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    resources: dict[str, dict[str, Any]] = {}
    for row in rows:
        resource, name, version, scope, metric, description, unit = row[:7]
        temporality, monotonic = row[11:13]
        entry = resources.setdefault(str(resource), {"resource": resource, "scopes": {}})
        scopes = entry["scopes"].setdefault(
            str((name, version, scope)),
            {"scope": {"name": name, "version": version, "attributes": attributes(scope)}, "metrics": {}},
        )
        points = scopes["metrics"].setdefault(
            str((metric, description, unit, temporality, monotonic)),
            {"name": metric, "description": description, "unit": unit, kind: _head(kind, temporality, monotonic)},
        )[kind]["dataPoints"]
        points.append(_point(kind, row))
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": attributes(entry["resource"])},
                "scopeMetrics": [
                    {"scope": scope["scope"], "metrics": list(scope["metrics"].values())}
                    for scope in entry["scopes"].values()
                ],
            }
            for entry in resources.values()
        ]
    }


def _head(kind: str, temporality: int, monotonic: bool) -> dict[str, Any]:
    head: dict[str, Any] = {"dataPoints": []}
    if kind in ("sum", "histogram", "exponentialHistogram"):
        head["aggregationTemporality"] = temporality
    if kind == "sum":
        head["isMonotonic"] = bool(monotonic)
    return head


def _point(kind: str, row: Sequence[Any]) -> dict[str, Any]:
    own, start, at, flags = row[7:11]
    point = {"attributes": attributes(own), "startTimeUnixNano": str(start), "timeUnixNano": str(at), "flags": flags}
    if kind != "summary":
        point["exemplars"] = [
            {"timeUnixNano": str(then), "asDouble": double(value), "spanId": span, "traceId": trace,
             "filteredAttributes": attributes(filtered)}
            for then, value, span, trace, filtered in zip(*row[13:18], strict=True)
        ]  # fmt: skip
    return point | _VALUES[kind](*row[18:])


def _number(value: str) -> dict[str, Any]:
    return {"asDouble": double(value)}


def _histogram(total: str, summed: str, least: str, most: str, counts: list[str], bounds: list[str]) -> dict[str, Any]:
    return {
        "count": total, "sum": double(summed), "min": double(least), "max": double(most), "bucketCounts": counts,
        "explicitBounds": [double(bound) for bound in bounds],
    }  # fmt: skip


def _exponential(
    total: str, summed: str, least: str, most: str, scale: int, zeros: str,
    positive: int, of_positive: list[str], negative: int, of_negative: list[str],
) -> dict[str, Any]:  # fmt: skip
    return {
        "count": total, "sum": double(summed), "min": double(least), "max": double(most), "scale": scale,
        "zeroCount": zeros, "positive": {"offset": positive, "bucketCounts": of_positive},
        "negative": {"offset": negative, "bucketCounts": of_negative},
    }  # fmt: skip


def _summary(total: str, summed: str, quantiles: list[str], values: list[str]) -> dict[str, Any]:
    pairs = zip(quantiles, values, strict=True)
    return {
        "count": total, "sum": double(summed),
        "quantileValues": [{"quantile": double(q), "value": double(v)} for q, v in pairs],
    }  # fmt: skip


_VALUES: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "gauge": _number,
    "sum": _number,
    "histogram": _histogram,
    "exponentialHistogram": _exponential,
    "summary": _summary,
}
