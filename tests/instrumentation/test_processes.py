"""Faults about processes: forks, workers and signals, with real processes and a real receiver."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from receiver import receiver, until

FORKS = """
import os, sys, threading
from tailtrace.instrumentation import flush, instrument, request
from tailtrace.instrumentation import runtime
instrument("forks", endpoint=sys.argv[1], interval_s=0.02)
with request("parent"):
    pass
flush()
buffer = runtime.active.exporter._buffer
stop = threading.Event()
def hold():
    while not stop.is_set():
        with buffer._lock:
            pass
threading.Thread(target=hold, daemon=True).start()
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        for _ in range(10):
            with request("child"):
                pass
        os._exit(0 if flush(10) else 1)
    children.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in children]
stop.set()
sys.exit(any(codes))
"""


def test_forked_children_send_their_own_spans_under_their_own_ids() -> None:
    with receiver() as sink:
        done = subprocess.run([sys.executable, "-c", FORKS, sink.endpoint], timeout=60, check=False)
        assert done.returncode == 0
        spans = sink.spans()
    children = [instance for instance, _, name in spans if name == "child"]
    parents = {instance for instance, _, name in spans if name == "parent"}
    assert len(children) == 40
    assert len(set(children)) == 4
    assert len(parents) == 1
    assert parents.isdisjoint(children)


MULTIPROCESSING = """
import multiprocessing, sys
from tailtrace.instrumentation import instrument, request
def work():
    with request("child"):
        pass
if __name__ == "__main__":
    instrument("mp", endpoint=sys.argv[1], interval_s=5)
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    with request("parent"):
        pass
"""


def test_leaving_sends_what_is_left_also_from_a_multiprocessing_child() -> None:
    with receiver() as sink:
        subprocess.run([sys.executable, "-c", MULTIPROCESSING, sink.endpoint], timeout=60, check=True)
        assert sorted(name for _, _, name in sink.spans()) == ["child", "parent"]


SERVICE = """
import time
from tailtrace.instrumentation import instrument, wrap_gateway
instrument("svc", interval_s=5)
async def plain(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    time.sleep(0.01)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
app = wrap_gateway(plain)
"""


def ask(port: int) -> bool:
    """Whether one request of its own connection was answered."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def asked_and_ended(server: subprocess.Popen[bytes], port: int) -> int:
    """How many requests the two workers of a server have answered, until SIGTERM ended it."""
    try:
        until(lambda: ask(port), 40)
        # Four at once, and the service holds its loop for each: a worker that is busy leaves the next to the other.
        with ThreadPoolExecutor(4) as pool:
            asked = 1 + sum(pool.map(lambda _: ask(port), range(60)))
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    finally:
        server.kill()
        server.wait()
    return asked


def test_uvicorn_workers_each_report_and_sigterm_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with receiver() as sink:
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.endpoint}
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "uvicorn",
                "service:app",
                "--port",
                str(port),
                "--workers",
                "2",
                "--log-level",
                "error",
            ],
            cwd=tmp_path,
            env=environment,
        )
        asked = asked_and_ended(server, port)
        spans = sink.spans()
    assert [name for _, _, name in spans if name == "GET"] == ["GET"] * asked
    assert len({instance for instance, _, _ in spans}) == 2


PRELOADED = """
import os, signal, socket, sys
import uvicorn
import service
sock = socket.socket(fileno=int(sys.argv[1]))
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        server = uvicorn.Server(uvicorn.Config(service.app, log_level="error"))
        server.run(sockets=[sock])
        os._exit(0)
    children.append(pid)
signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGTERM) for pid in children])
for pid in children:
    os.waitpid(pid, 0)
"""


def test_an_app_loaded_before_its_workers_are_forked_reports_from_each(tmp_path: Path) -> None:
    """What `gunicorn --preload` does: import, then fork; a request in the parent before has started its thread."""
    early = "from tailtrace.instrumentation import flush, request\nwith request('early'):\n    pass\nflush()\n"
    (tmp_path / "service.py").write_text(SERVICE + early)
    with receiver() as sink, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        port = listening.getsockname()[1]
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.endpoint}
        master = subprocess.Popen(
            [sys.executable, "-c", PRELOADED, str(listening.fileno())],
            cwd=tmp_path, env=environment, pass_fds=[listening.fileno()],
        )  # fmt: skip
        asked = asked_and_ended(master, port)
        spans = sink.spans()
    names = [name for _, _, name in spans]
    assert (names.count("GET"), names.count("early")) == (asked, 1)
    assert len({instance for instance, _, _ in spans}) == 3


def test_a_reload_sends_what_the_former_process_had_and_begins_anew(tmp_path: Path) -> None:
    service = tmp_path / "service.py"
    service.write_text(SERVICE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def answer() -> bytes:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as response:
                return bytes(response.read())
        except OSError:
            return b""

    with receiver() as sink:
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.endpoint}
        arguments = ["uvicorn", "service:app", "--port", str(port), "--reload", "--log-level", "error"]
        server = subprocess.Popen([sys.executable, "-m", *arguments], cwd=tmp_path, env=environment)
        try:
            until(lambda: answer() == b"ok", 40)
            service.write_text(SERVICE.replace('b"ok"', 'b"new"'))
            # A server that looks at its files for the first time only now sees no change in them: each touch is one.
            touches = itertools.count(1_900_000_000)

            def reloaded() -> bool:
                stamp = next(touches)
                if stamp % 100 == 0:
                    os.utime(service, (stamp, stamp))
                return answer() == b"new"

            until(reloaded, 40)
            server.send_signal(signal.SIGTERM)
            server.wait(20)
        finally:
            server.kill()
            server.wait()
        instances = {instance for instance, _, name in sink.spans() if name == "GET"}
    assert len(instances) >= 2


GONE = """
import sys, time
from tailtrace.instrumentation import instrument, request
instrument("gone", endpoint=sys.argv[1])
for _ in range(100):
    with request("r"):
        pass
"""


def test_leaving_with_a_receiver_that_never_answers_is_bounded_and_said() -> None:
    hole = socket.socket()
    hole.bind(("127.0.0.1", 0))
    hole.listen()
    endpoint = f"http://127.0.0.1:{hole.getsockname()[1]}"
    done = subprocess.run(
        [sys.executable, "-c", GONE, endpoint],
        env={**os.environ, "TAILTRACE_SHUTDOWN_S": "1"},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    hole.close()
    assert "100 spans could not be sent" in done.stderr
