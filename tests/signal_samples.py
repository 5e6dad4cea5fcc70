"""One of every kind of metric and log record, as official messages."""

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

TRACE_ID = bytes.fromhex("5b8efff798038103d269b633813fc60c")
SPAN_ID = bytes.fromhex("eee19b7ec3c1b174")


def metrics(now: int) -> ExportMetricsServiceRequest:
    """A gauge, a sum and a histogram with exemplars, an exponential histogram, a summary."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "vllm"
    kinds = resource.scope_metrics.add(scope={"name": "s", "version": "2"}).metrics

    gauge = kinds.add(name="kv_usage", unit="1").gauge.data_points.add(time_unix_nano=now, as_double=0.5, flags=0)
    exemplar = gauge.exemplars.add(time_unix_nano=now - 5, as_int=-7, trace_id=TRACE_ID, span_id=SPAN_ID)
    exemplar.filtered_attributes.add(key="user").value.string_value = "u1"
    gauge.exemplars.add(time_unix_nano=now - 4, as_double=2.5)

    total = kinds.add(name="tokens").sum
    total.aggregation_temporality, total.is_monotonic = 2, True
    total.data_points.add(start_time_unix_nano=now - 100, time_unix_nano=now, as_int=12)

    histogram = kinds.add(name="ttft", unit="s").histogram
    histogram.aggregation_temporality = 2
    point = histogram.data_points.add(
        start_time_unix_nano=now - 100, time_unix_nano=now, count=6, sum=1.5, bucket_counts=[1, 2, 3],
        explicit_bounds=[0.1, 0.25], min=0.01, max=0.9,
    )  # fmt: skip
    point.attributes.add(key="model").value.string_value = "m"
    point.exemplars.add(time_unix_nano=now - 3, as_double=0.2, trace_id=TRACE_ID, span_id=SPAN_ID)

    exponential = kinds.add(name="itl").exponential_histogram
    exponential.aggregation_temporality = 1
    exponential.data_points.add(
        time_unix_nano=now, count=9, sum=-2.0, scale=-3, zero_count=1,
        positive={"offset": 5, "bucket_counts": [4, 0, 3]}, negative={"offset": -2, "bucket_counts": [1]},
        min=-1.0, max=64.0,
    )  # fmt: skip

    summary = kinds.add(name="gc").summary.data_points.add(time_unix_nano=now, count=4, sum=8.0)
    summary.quantile_values.add(quantile=0.5, value=1.5)
    summary.quantile_values.add(quantile=0.99, value=3.0)
    return request


def logs(now: int) -> ExportLogsServiceRequest:
    """A record of a span, one with a structured body and an observed time only, one with neither time nor body."""
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add(schema_url="https://example.org/r")
    resource.resource.attributes.add(key="service.name").value.string_value = "gw"
    records = resource.scope_logs.add(scope={"name": "logger"}, schema_url="https://example.org/s").log_records
    first = records.add(
        time_unix_nano=now, observed_time_unix_nano=now + 1, severity_number=17, severity_text="ERROR", flags=1,
        trace_id=TRACE_ID, span_id=SPAN_ID, event_name="oom",
    )  # fmt: skip
    first.body.string_value = "out of memory"
    first.attributes.add(key="attempt").value.int_value = 3
    second = records.add(observed_time_unix_nano=now + 2, trace_id=b"short")
    second.body.kvlist_value.values.add(key="a").value.array_value.values.add().int_value = 1
    records.add(severity_number=9)
    return request
