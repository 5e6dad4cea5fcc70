"""Bodies of metrics and logs for loads that mix signals: a host's counters and a service's log lines."""

from __future__ import annotations

import numpy as np
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

ITEMS_PER_BODY = 500
GPUS = 8
_GAUGES = ("hw.gpu.utilization", "hw.gpu.memory.utilization", "hw.power", "hw.temperature", "tailtrace.link.rx")
_LINES = ("request accepted", "batch of 17 sequences scheduled", "kv cache at 81 %", "client closed the connection")


class SignalFactory:
    """Endless OTLP bodies of gauges with a histogram, and of log records. No two are alike."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)

    def metrics(self, now_ns: int) -> bytes:
        """500 points of one host: gauges of its GPUs over the last second, and one histogram."""
        request = ExportMetricsServiceRequest()
        resource = request.resource_metrics.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "sampler"
        resource.resource.attributes.add(key="host.name").value.string_value = f"gpu-{self._rng.integers(64)}"
        metrics = resource.scope_metrics.add().metrics
        values = self._rng.random(ITEMS_PER_BODY)
        gauges = [metrics.add(name=name, unit="1").gauge.data_points for name in _GAUGES]
        for k in range(ITEMS_PER_BODY - 1):
            point = gauges[k % len(gauges)].add(time_unix_nano=now_ns - k * 10_000_000, as_double=float(values[k]))
            point.attributes.add(key="hw.id").value.string_value = f"GPU-{k % GPUS}"
        histogram = metrics.add(name="vllm:time_to_first_token_seconds", unit="s").histogram
        histogram.aggregation_temporality = 2
        point = histogram.data_points.add(
            time_unix_nano=now_ns, start_time_unix_nano=now_ns - 10**9, count=100, sum=float(values.sum())
        )
        point.explicit_bounds.extend([0.1, 1.0, 10.0])
        point.bucket_counts.extend([25, 50, 20, 5])
        return bytes(request.SerializeToString())

    def logs(self, now_ns: int) -> bytes:
        """500 records, each of a trace of its own."""
        request = ExportLogsServiceRequest()
        resource = request.resource_logs.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "vllm"
        records = resource.scope_logs.add().log_records
        ids = self._rng.bytes(16 * ITEMS_PER_BODY)
        for k in range(ITEMS_PER_BODY):
            record = records.add(
                time_unix_nano=now_ns - k * 1_000_000, severity_number=9, severity_text="INFO",
                trace_id=ids[16 * k : 16 * k + 16], span_id=ids[16 * k : 16 * k + 8],
            )  # fmt: skip
            record.body.string_value = _LINES[k % len(_LINES)]
            record.attributes.add(key="thread").value.int_value = k % 16
        return bytes(request.SerializeToString())
