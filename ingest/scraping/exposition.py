"""From a Prometheus or OpenMetrics page to one OTLP export request, every series under its own name and unit.

A series keeps the name of its sample (`vllm:prompt_tokens_total`); a histogram or summary is one metric under the name
of its family. A value that is not a number is left out: absent is absent, never 0.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from tailtrace.version import VERSION

SCOPE: Final = "tailtrace.scrape"
_CUMULATIVE: Final = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
_OPENMETRICS: Final = "application/openmetrics-text"
_COUNTERS: Final = re.compile(r"^# TYPE (\S+) counter", re.MULTILINE)

# Exporters that state another type than the one their values have.
CORRECTED_TYPES: Final[Mapping[str, str]] = {
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "gauge",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "gauge",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "gauge",
    "DCGM_FI_PROF_NVLINK_TX_BYTES": "gauge",
    "DCGM_FI_PROF_NVLINK_RX_BYTES": "gauge",
}


def read_exposition(
    text: str, content_type: str, resource: Mapping[str, str], time_unix_ns: int
) -> tuple[ExportMetricsServiceRequest, int]:
    """The request and how many points it holds. Raises ValueError for text that is not an exposition."""
    request = ExportMetricsServiceRequest()
    of_process = request.resource_metrics.add()
    for key, value in resource.items():
        of_process.resource.attributes.add(key=key).value.string_value = value
    scope = of_process.scope_metrics.add()
    scope.scope.name, scope.scope.version = SCOPE, VERSION
    points = 0
    openmetrics = content_type.startswith(_OPENMETRICS)
    plain = set() if openmetrics else set(_COUNTERS.findall(text))
    for family in (read_openmetrics if openmetrics else read_prometheus)(text):
        points += _add(scope.metrics, family, time_unix_ns, family.name in plain)
    return request, points


def _add(metrics: Any, family: Any, time_unix_ns: int, plain: bool) -> int:
    """`plain`: its exporter wrote a counter without `_total`, which the parser adds."""
    kind = CORRECTED_TYPES.get(family.name, family.type)
    if kind == "histogram":
        return _histogram(metrics.add(name=family.name, description=family.documentation), family, time_unix_ns)
    if kind == "summary":
        return _summary(metrics.add(name=family.name, description=family.documentation), family, time_unix_ns)
    by_name: dict[str, list[Any]] = defaultdict(list)
    for sample in family.samples:
        # When a series was created is no measurement of the service.
        if not sample.name.endswith("_created") and math.isfinite(sample.value):
            by_name[family.name if plain else sample.name].append(sample)
    for name, samples in by_name.items():
        metric = metrics.add(name=name, description=family.documentation, unit=family.unit or "")
        if kind == "counter":
            metric.sum.aggregation_temporality, metric.sum.is_monotonic = _CUMULATIVE, True
            points = metric.sum.data_points
        else:
            points = metric.gauge.data_points
        for sample in samples:
            point = points.add(time_unix_nano=time_unix_ns, as_double=sample.value)
            _label(point, sample.labels.items())
    return sum(map(len, by_name.values()))


def _label(point: Any, labels: Iterable[tuple[str, str]]) -> None:
    for key, value in labels:
        point.attributes.add(key=key).value.string_value = value


def _series(family: Any, own: str) -> dict[tuple[tuple[str, str], ...], dict[str, Any]]:
    """Samples of a histogram or summary by their labels without `own` (le, quantile)."""
    series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != own))
        found = series.setdefault(key, {"steps": {}, "sum": math.nan, "count": math.nan})
        if own in sample.labels:
            found["steps"][float(sample.labels[own])] = sample.value
        elif sample.name.endswith("_sum"):
            found["sum"] = sample.value
        elif sample.name.endswith("_count"):
            found["count"] = sample.value
    return series


def _histogram(metric: metrics_pb2.Metric, family: Any, time_unix_ns: int) -> int:
    metric.histogram.aggregation_temporality = _CUMULATIVE
    points = 0
    for labels, found in _series(family, "le").items():
        bounds = sorted(bound for bound in found["steps"] if math.isfinite(bound))
        counts = [found["steps"][bound] for bound in bounds]
        total = found["steps"].get(math.inf, found["count"])
        below = [0.0, *counts]
        within = [after - before for before, after in zip(below, [*counts, total], strict=True)]
        if not all(math.isfinite(count) and count >= 0 for count in within):
            continue
        point = metric.histogram.data_points.add(
            time_unix_nano=time_unix_ns, count=int(total), explicit_bounds=bounds, bucket_counts=map(int, within)
        )
        if math.isfinite(found["sum"]):
            point.sum = found["sum"]
        _label(point, labels)
        points += 1
    return points


def _summary(metric: metrics_pb2.Metric, family: Any, time_unix_ns: int) -> int:
    points = 0
    for labels, found in _series(family, "quantile").items():
        if not (math.isfinite(found["count"]) and math.isfinite(found["sum"])):
            continue
        point = metric.summary.data_points.add(time_unix_nano=time_unix_ns, count=int(found["count"]), sum=found["sum"])
        for quantile, value in sorted(found["steps"].items()):
            if math.isfinite(value):
                point.quantile_values.add(quantile=quantile, value=value)
        _label(point, labels)
        points += 1
    return points
