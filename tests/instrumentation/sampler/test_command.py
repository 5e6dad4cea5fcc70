"""`tailtrace sample` as a process: what arrives at a receiver, what it imports, who may run beside it."""

from __future__ import annotations

import os
import resource as resource_limits
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tailtrace.instrumentation.sampler.catalogue import BY_NAME
from tailtrace.instrumentation.sampler.nvml import Unavailable, load_pynvml
from tailtrace.instrumentation.sampler.series import Series
from tailtrace.instrumentation.sampler.single import AlreadySampling, take_place

HEAVY = ("chdb", "pandas", "dash", "celery", "pyarrow", "pydantic", "typer", "numpy", "grpc", "requests", "psutil")


@contextmanager
def receiving() -> Iterator[tuple[str, list[tuple[str, bytes]], threading.Event]]:
    """Address, bodies by path, and an event that is set once several have come."""
    bodies: list[tuple[str, bytes]] = []
    enough = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            if len(bodies) >= 4:
                enough.set()

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies, enough
    finally:
        server.shutdown()
        server.server_close()


def start(endpoint: str, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    limited = ["sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh"]
    command = [*limited, sys.executable, "-m", "tailtrace", "sample", "--endpoint", endpoint, "--match", "", *more]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STUB_STATE": str(folder / "state")}
    return subprocess.Popen([*command, "--place", f"t-{uuid.uuid4()}"], env=environment, stderr=subprocess.PIPE)


def test_what_arrives_is_in_the_catalogue_under_the_samplers_resource(library: Path) -> None:
    with receiving() as (endpoint, bodies, enough):
        process = start(endpoint, library.parent, "--pid", str(os.getpid()))
        try:
            assert enough.wait(60)
            # A file is kept open for each watched thread.
            soft, hard = resource_limits.prlimit(process.pid, resource_limits.RLIMIT_NOFILE)
            assert soft == min(hard, 65536) > 256
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.communicate()
    assert {path for path, _ in bodies} == {"/v1/metrics"}
    found: dict[str, set[str]] = {}
    for _, body in bodies:
        request = ExportMetricsServiceRequest.FromString(body)
        for resource in request.resource_metrics:
            attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            assert attributes["tailtrace.role"] == "sampler"
            assert attributes["host.id"]
            for scope in resource.scope_metrics:
                assert scope.scope.name == "tailtrace"
                for metric in scope.metrics:
                    known = BY_NAME[metric.name]
                    assert metric.unit == known.unit
                    assert metric.WhichOneof("data") == known.kind
                    data = metric.sum if known.kind == "sum" else metric.gauge
                    for point in data.data_points:
                        assert {pair.key for pair in point.attributes} <= set(known.attributes)
                        assert point.time_unix_nano > point.start_time_unix_nano
                        assert known.kind == "gauge" or point.start_time_unix_nano > 0
                    ids = {a.value.string_value for p in data.data_points for a in p.attributes if a.key == "hw.id"}
                    found.setdefault(metric.name, set()).update(ids)
    assert len(found["hw.power"]) == 8
    assert {"tailtrace.link.io", "tailtrace.gpu.sm_active", "tailtrace.host.process.cpu", "hw.energy"} <= found.keys()


def test_readings_lie_within_a_period_of_what_they_tell(library: Path) -> None:
    """The power is changed at known times: each reading's own time lies where its value held, give or take a period."""
    period_ns = 250_000_000
    state = library.parent / "state"
    changes: list[tuple[int, int]] = []

    def change(watt: int) -> None:
        before = time.time_ns()
        written = state.with_suffix(".new")
        written.write_text(f"field.186.value {watt * 1000}\n")
        written.rename(state)
        changes.append((before, time.time_ns()))

    change(100)
    with receiving() as (endpoint, bodies, enough):
        process = start(endpoint, library.parent)
        try:
            for watt in range(101, 106):
                time.sleep(0.6)
                change(watt)
            assert enough.wait(60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            state.unlink()
            process.kill()
            process.communicate()
    changes.append((time.time_ns(), time.time_ns()))
    seen = set()
    for _, body in bodies:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.gauge.data_points if metric.name == "hw.power" else ():
                    held = round(point.as_double) - 100
                    assert changes[held][0] <= point.time_unix_nano <= changes[held + 1][1] + period_ns
                    seen.add(held)
    assert len(seen) >= 2


def test_when_the_driver_was_replaced_it_starts_itself_anew(library: Path) -> None:
    """A mismatch of library and driver ends only in a process that loads the library again: same pid, new instance."""

    def instances(word: bytes) -> set[str]:
        found = set()
        for _, body in [entry for entry in list(bodies) if word in entry[1]]:
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                found |= {p.value.string_value for p in resource.resource.attributes if p.key == "service.instance.id"}
        return found

    def until(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not done() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert done()

    state = library.parent / "state"
    with receiving() as (endpoint, bodies, _):
        process = start(endpoint, library.parent)
        try:
            until(lambda: len(instances(b"hw.power")) == 1)
            state.write_text("init 18\nerr.nvmlDeviceGetFieldValues 18\n")
            until(lambda: bool(instances(b"driver_library_mismatch") - instances(b"hw.power")))
            state.write_text("init 0\n")
            until(lambda: len(instances(b"hw.power")) == 2)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            state.unlink(missing_ok=True)
            process.kill()
            process.communicate()


def test_it_runs_without_the_servers_packages() -> None:
    script = (
        "import sys\n"
        "from tailtrace.cli import _run\n"
        "try: _run(['sample', '--help'])\n"
        "except SystemExit: pass\n"
        "import tailtrace.instrumentation.metrics, tailtrace.instrumentation.sampler.sampler\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_a_second_sampler_is_refused_and_the_place_is_free_again_after_the_first() -> None:
    name = f"t-{uuid.uuid4()}"
    with take_place(name), pytest.raises(AlreadySampling, match="one is enough"):
        take_place(name)
    take_place(name).close()


@pytest.mark.parametrize(("option", "value"), [("--interval", "0.01"), ("--match", "(")])
def test_options_that_cannot_work_are_told(option: str, value: str) -> None:
    command = [sys.executable, "-m", "tailtrace", "sample", option, value]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert f"{option}: expected" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_another_package_called_pynvml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("def nvmlInit(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    real = sys.modules.pop("pynvml", None)
    try:
        with pytest.raises(Unavailable, match="is not nvidia-ml-py") as caught:
            load_pynvml()
    finally:
        sys.modules.pop("pynvml", None)
        if real is not None:
            sys.modules["pynvml"] = real
    assert caught.value.reason == "foreign_pynvml"


def test_without_pynvml_the_pip_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unavailable, match=r"tailtrace\[gpu\]") as caught:
        load_pynvml()
    assert caught.value.reason == "no_pynvml"


def test_a_metric_or_attribute_outside_the_catalogue_cannot_be_sent() -> None:
    with pytest.raises(KeyError):
        Series("tailtrace.gpu.vibes")
    with pytest.raises(KeyError, match=r"mood"):
        Series("hw.power", {"mood": "good"})
