"""Pages of engines and exporters, from text to the metric tables and their canonical view."""

from __future__ import annotations

import http.server
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailtrace.errors import ConfigError
from tailtrace.ingest.framing import frame
from tailtrace.ingest.scraping import Scraper, Target, parse_targets, read_exposition
from tailtrace.ingest.scraping.scraper import Unreadable, read_page
from tailtrace.ingest.store import Store

VLLM = Path(__file__).parents[2] / "data" / "vllm" / "metrics.prom"
NOW = 1_790_000_000_000_000_000


class Collected:
    """Stands in for the pipeline: bodies go straight into the store, or only into a list."""

    def __init__(self, store: Store | None = None, folder: Path | None = None) -> None:
        self.bodies: list[bytes] = []
        self._store, self._folder = store, folder

    def submit(self, signal: str, body: bytes, items: int) -> None:
        assert signal == "metrics"
        assert items > 0
        self.bodies.append(body)
        if self._store and self._folder:
            path = self._folder / f"{len(self.bodies)}.otlp"
            path.write_bytes(frame(body) + body)
            self._store.insert_segment("metrics", path, f"scrape-{len(self.bodies)}")


class Page(http.server.BaseHTTPRequestHandler):
    text = b""
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        if self.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def page() -> Iterator[tuple[type[Page], str]]:
    handler = type("OwnPage", (Page,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler, f"http://127.0.0.1:{server.server_address[1]}/metrics"
        server.shutdown()
        thread.join()


def scraper(collected: Collected, targets: list[Target] | None = None, clock: Any = lambda: NOW) -> Scraper:
    return Scraper(targets or [], collected, clock)  # type: ignore[arg-type]


def test_vllm_as_it_was_exposed(store: Store, tmp_path: Path, page: tuple[type[Page], str]) -> None:
    handler, url = page
    handler.text = VLLM.read_bytes()
    scraper(Collected(store, tmp_path)).scrape(Target("vllm", url))

    def gauge(name: str) -> list[dict[str, Any]]:
        return store.query(
            "SELECT Value, Attributes['model_name'] AS model, ServiceName, toUnixTimestamp64Nano(TimeUnix) AS at "
            "FROM otel_metrics_gauge WHERE MetricName = {name:String}",
            {"name": name},
        )

    [waiting] = gauge("vllm:num_requests_waiting")
    assert waiting == {"Value": 0.0, "model": "tiny", "ServiceName": "vllm", "at": NOW}
    assert gauge("vllm:estimated_flops_per_gpu_created") == []
    [total] = store.query(
        "SELECT Value, IsMonotonic, AggregationTemporality AS t FROM otel_metrics_sum "
        "WHERE MetricName = 'vllm:generation_tokens_total'"
    )
    assert (total["Value"] > 0, total["IsMonotonic"], total["t"]) == (True, True, 2)
    [ttft] = store.query(
        "SELECT Count, Sum, BucketCounts, ExplicitBounds FROM engine_histograms WHERE Canonical = 'ttft'"
    )
    assert ttft["ExplicitBounds"][0] == 0.001
    assert len(ttft["BucketCounts"]) == len(ttft["ExplicitBounds"]) + 1
    assert sum(ttft["BucketCounts"]) == ttft["Count"] > 0
    names = {row["Canonical"] for row in store.query("SELECT DISTINCT Canonical FROM engine_metrics")}
    assert {"queue_depth", "running", "kv_usage", "preemptions", "prompt_tokens", "generation_tokens"} <= names


DCGM = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 45
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1"} 1024
# HELP DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL bandwidth
# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu="0",UUID="GPU-1"} 3
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1"} NaN
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.42
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0"} 0.42
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="a"} 2500000
# TYPE sglang:kv_transfer_latency_ms histogram
sglang:kv_transfer_latency_ms_bucket{le="10"} 1
sglang:kv_transfer_latency_ms_bucket{le="+Inf"} 3
sglang:kv_transfer_latency_ms_sum 55
sglang:kv_transfer_latency_ms_count 3
"""


def test_canonical_names_and_units(store: Store, tmp_path: Path, page: tuple[type[Page], str]) -> None:
    handler, url = page
    handler.text = DCGM.encode()
    scraper(Collected(store, tmp_path)).scrape(Target("mixed", url))
    rows = store.query("SELECT MetricName, Canonical, Unit, Value, Cumulative, Former FROM engine_metrics")
    assert {
        row["MetricName"]: (row["Canonical"], row["Unit"], row["Value"], row["Cumulative"], row["Former"])
        for row in rows
    } == {
        "DCGM_FI_DEV_GPU_UTIL": ("gpu_busy", "1", pytest.approx(0.45), 0, 0),
        "DCGM_FI_DEV_FB_USED": ("gpu_memory_used", "By", 1 << 30, 0, 0),
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": ("gpu_nvlink", "By/s", 3e6, 0, 0),
        "vllm:kv_cache_usage_perc": ("kv_usage", "1", 0.42, 0, 0),
        "vllm:gpu_cache_usage_perc": ("kv_usage", "1", 0.42, 0, 1),
        "nv_inference_queue_duration_us": ("queue_time", "s", pytest.approx(2.5), 1, 0),
    }
    [transfer] = store.query("SELECT Canonical, Count, Sum, BucketCounts, ExplicitBounds FROM engine_histograms")
    assert transfer["Sum"] == pytest.approx(0.055)
    assert (transfer["BucketCounts"], transfer["ExplicitBounds"]) == ([1, 2], [pytest.approx(0.01)])


LABELLED = """# TYPE tgi_batch_forward_duration histogram
tgi_batch_forward_duration_bucket{method="prefill",le="+Inf"} 2
tgi_batch_forward_duration_sum{method="prefill"} 0.5
tgi_batch_forward_duration_count{method="prefill"} 2
tgi_batch_forward_duration_bucket{method="decode",le="+Inf"} 7
tgi_batch_forward_duration_sum{method="decode"} 0.25
tgi_batch_forward_duration_count{method="decode"} 7
# TYPE sglang:per_stage_req_latency_seconds histogram
sglang:per_stage_req_latency_seconds_bucket{stage="prefill_forward",le="+Inf"} 3
sglang:per_stage_req_latency_seconds_sum{stage="prefill_forward"} 1.5
sglang:per_stage_req_latency_seconds_count{stage="prefill_forward"} 3
sglang:per_stage_req_latency_seconds_bucket{stage="tokenize",le="+Inf"} 3
sglang:per_stage_req_latency_seconds_sum{stage="tokenize"} 0.01
sglang:per_stage_req_latency_seconds_count{stage="tokenize"} 3
# TYPE DCGM_FI_PROF_NVLINK_TX_BYTES counter
DCGM_FI_PROF_NVLINK_TX_BYTES{gpu="0",UUID="GPU-1"} 12
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="a"} 5
"""


def test_names_that_mean_something_by_their_label(store: Store, tmp_path: Path, page: tuple[type[Page], str]) -> None:
    handler, url = page
    handler.text = LABELLED.encode()
    scraper(Collected(store, tmp_path)).scrape(Target("mixed", url))
    rows = store.query("SELECT MetricName AS name, Canonical AS canonical, Count AS n FROM engine_histograms")
    assert {(row["name"], row["canonical"], row["n"]) for row in rows} == {
        ("tgi_batch_forward_duration", "prefill_time", 2),
        ("tgi_batch_forward_duration", "decode_time", 7),
        ("sglang:per_stage_req_latency_seconds", "prefill_time", 3),
    }
    rows = store.query("SELECT Canonical AS canonical, Value AS value, Cumulative AS sum FROM engine_metrics")
    assert {(row["canonical"], row["value"], row["sum"]) for row in rows} == {
        ("gpu_nvlink_tx", 12, 0),
        ("requests", 5, 1),
    }


def test_no_name_has_two_meanings() -> None:
    """One factor and unit for each canonical name, one meaning for each series (and label)."""
    schema = Path(__file__).parents[3] / "ingest" / "schema" / "0052_metric_names.sql"
    rows = re.findall(
        r"^  \('(.+?)', '(.+?)', '(.+?)', (.+?), ([01]), '(.*?)', '(.*?)'\)", schema.read_text(), re.MULTILINE
    )
    assert len(rows) > 90
    units: dict[str, set[str]] = {}
    for _, canonical, unit, *_ in rows:
        units.setdefault(canonical, set()).add(unit)
    assert {canonical for canonical, found in units.items() if len(found) > 1} == set()
    keys = [(name, label, value) for name, _, _, _, _, label, value in rows]
    assert len(set(keys)) == len(keys)
    # What the name says of its unit and what the factor does agree.
    factors = {"_ms": 0.001, "_us": 1e-6, "_seconds": 1.0, "_secs": 1.0, "_bytes": 1.0}
    for name, _, _, factor, *_ in rows:
        for ending, expected in factors.items():
            if name.endswith(ending):
                assert float(factor) == expected, name


def test_openmetrics_and_summaries() -> None:
    text = "# TYPE a counter\n# UNIT a_seconds seconds\na_total 3\n# TYPE q summary\nq_sum 4\nq_count 2\n# EOF\n"
    with pytest.raises(ValueError, match="Clashing"):
        read_exposition(text, "application/openmetrics-text; version=1.0.0", {}, NOW)
    good = (
        "# TYPE a counter\na_total 3\na_created 1.5\n"
        '# TYPE q summary\nq{quantile="0.5"} 1.5\nq_sum 4\nq_count 2\n# EOF\n'
    )
    request, points = read_exposition(good, "application/openmetrics-text; version=1.0.0", {"service.name": "x"}, NOW)
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    assert points == 2
    assert [metric.name for metric in metrics] == ["a_total", "q"]
    assert metrics[0].sum.data_points[0].as_double == 3
    assert metrics[1].summary.data_points[0].quantile_values[0].value == 1.5


def test_a_histogram_that_goes_down_is_left_out() -> None:
    text = '# TYPE h histogram\nh_bucket{le="1"} 5\nh_bucket{le="2"} 3\nh_bucket{le="+Inf"} 6\nh_sum 1\nh_count 6\n'
    _, points = read_exposition(text, "text/plain", {}, NOW)
    assert points == 0


def test_a_target_that_is_down_is_absent_once_an_hour_and_never_zero(page: tuple[type[Page], str]) -> None:
    handler, url = page
    handler.status = 503
    collected = Collected()
    times = iter([0, 10 * 10**9, 3_601 * 10**9, 3_611 * 10**9])
    reader = scraper(collected, clock=lambda: NOW + next(times))
    target = Target("vllm", url)
    for _ in range(3):
        reader.scrape(target)
    assert len(collected.bodies) == 2
    assert b"tailtrace.absent" in collected.bodies[0]
    assert b"HTTP status 503" in collected.bodies[0]
    handler.status, handler.text = 200, b"up 1\n"
    reader.scrape(target)
    assert b"tailtrace.absent" not in collected.bodies[2]


@pytest.mark.parametrize("text", [b"", b"<html>no</html>\n", b'a{b="\n', b"\xff\xfe\x00"])
def test_what_is_no_page_of_metrics_is_absent(page: tuple[type[Page], str], text: bytes) -> None:
    handler, url = page
    handler.text = text
    collected = Collected()
    scraper(collected).scrape(Target("x", url))
    assert [b"tailtrace.absent" in body for body in collected.bodies] == [True]


def test_redirects_are_not_followed_and_nobody_there_says_so(page: tuple[type[Page], str]) -> None:
    handler, url = page
    handler.status = 302
    with pytest.raises(Unreadable, match="302"):
        read_page(url, 5)
    with pytest.raises(Unreadable, match=r"[Rr]efused"):
        read_page("http://127.0.0.1:9/metrics", 5)


def test_threads_read_again_and_end(page: tuple[type[Page], str]) -> None:
    handler, url = page
    handler.text = b"up 1\n"
    collected = Collected()
    reader = scraper(collected, [Target("x", url, 0.01)], time.time_ns)
    reader.start()
    deadline = time.monotonic() + 20
    while len(collected.bodies) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    reader.stop(10)
    assert len(collected.bodies) >= 2
    assert not any(thread.name == "tailtrace-scrape-x" for thread in threading.enumerate())


def test_targets() -> None:
    assert parse_targets("vllm=http://a:8000/metrics,5s gpu=http://b:9400") == [
        Target("vllm", "http://a:8000/metrics", 5.0),
        Target("gpu", "http://b:9400/metrics", 10.0),
    ]
    assert parse_targets("x=http://u:secret@h:1/m?a=1,2,1500ms")[0] == Target("x", "http://u:secret@h:1/m?a=1,2", 1.5)
    assert parse_targets("x=http://u:secret@h:1/m")[0].instance == "h:1"
    assert parse_targets("") == []


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "=http://a/m",
        "x=ftp://a/m",
        "x=http:///m",
        "x=http://a/m,0",
        "x=http://a/m,1d",
        "x=http://a/m x=http://a/m",
    ],
)
def test_bad_targets(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_targets(text)
