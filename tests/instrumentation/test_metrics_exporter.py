"""Points on their way out: encoded when they are put, joined when they are sent."""

from __future__ import annotations

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from receiver import receiver

from tailtrace.instrumentation.metrics import MetricsExporter
from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.settings import Settings


def test_points_of_several_ticks_are_one_body_with_one_metric_a_name() -> None:
    power = {"hw.id": "GPU-0"}
    with receiver() as sink:
        made = MetricsExporter(Settings(endpoint=sink.endpoint), {"service.instance.id": "i"})
        made.put([Point("hw.power", "W", "gauge", 1.5, 10, power), Point("hw.energy", "J", "sum", 7, 10, power, 5)])
        made.put([Point("hw.power", "W", "gauge", "much", 15, power)])  # type: ignore[arg-type]
        made.put([Point("hw.power", "W", "gauge", 2, 20, power)])
        made.start()
        made.shutdown(10)
        (body,) = sink.bodies
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert [(p.time_unix_nano, p.as_double or p.as_int) for p in found["hw.power"].gauge.data_points] == [
        (10, 1.5),
        (20, 2),
    ]
    (energy,) = found["hw.energy"].sum.data_points
    assert (energy.start_time_unix_nano, energy.time_unix_nano, energy.as_int) == (5, 10, 7)
    assert made.losses.snapshot() == {"unencodable": 1}
