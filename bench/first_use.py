"""The first minutes of a new user: `make demo` in a clean copy of the tree until its address answers, then until its
pages are full, and until the regression in its history is an open alert (counted from full pages).

With --quick the demo runs in this environment (no virtual environment is made): the address comes sooner than a user's.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import httpx
from harness import Figure, arguments, report, wait_until, workspace
from product import answers, free_port

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.compile(rb"http://[0-9a-zA-Z.\-]+:\d+")


def copy_of_tree(directory: Path) -> Path:
    """A clone of the committed tree: what a new user has, without ignored files."""
    target = directory / "tree"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(target)], check=True)
    return target


class Output:
    """Reads the demo's output as it comes; `address` is the first http address printed after the start."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.lines: list[bytes] = []
        self.address = ""
        self._stream = stream
        threading.Thread(target=self._read, name="demo-output", daemon=True).start()

    def _read(self) -> None:
        for line in self._stream:
            self.lines.append(line)
            found = ADDRESS.search(line)
            if found and not self.address and answers(found[0].decode()):
                self.address = found[0].decode()

    def tail(self) -> str:
        return b"".join(self.lines[-30:]).decode(errors="replace")


def filled(address: str) -> bool:
    """Whether every page has content: services, a list of requests, and one request with its spans."""
    with contextlib.suppress(httpx.HTTPError, KeyError, IndexError, ValueError):
        services = httpx.get(f"{address}/api/v1/services", timeout=10).json()
        requests = httpx.get(f"{address}/api/v1/requests", params={"limit": 1}, timeout=10).json()["requests"]
        one = httpx.get(f"{address}/api/v1/requests/{requests[0]['trace_id']}", timeout=10)
        return bool(services.get("services")) and one.status_code == 200
    return False


def told(address: str) -> bool:
    """Whether the regression that the made history holds is an open alert, with its stage and its deploy."""
    with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
        alerts = httpx.get(f"{address}/api/v1/alerts", params={"state": "open"}, timeout=10).json()["alerts"]
        return any(
            each["body"].get("stage") == "tokenize" and (each["body"]["marker"] or {}).get("became") == "1.5.0"
            for each in alerts
        )
    return False


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    figures: dict[str, Figure] = {"demo_address_s": None, "demo_filled_s": None, "alert_min": None}
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "TAILTRACE_PORT": str(free_port()),
        "TAILTRACE_OTLP_HTTP_PORT": str(free_port()),
        "TAILTRACE_OTLP_GRPC_PORT": "0",
    }
    with workspace(options.work) as work:
        environment["TAILTRACE_DATA"] = str(work / "demo-data")
        tree = ROOT if options.quick else copy_of_tree(work)
        command = [sys.executable, "-m", "tailtrace", "demo"] if options.quick else ["make", "demo"]
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=work if options.quick else tree, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        output = Output(process.stdout)
        try:
            wait_until(lambda: bool(output.address) or process.poll() is not None, 600, "an address that answers")
            if not output.address:
                raise RuntimeError(f"the demo ended before it printed an address that answers:\n{output.tail()}")
            figures["demo_address_s"] = time.monotonic() - started
            figures["demo_filled_s"] = wait_until(lambda: filled(output.address), 300, "content on every page", 0.25)
            wait_s = wait_until(lambda: told(output.address), 900, "an open alert for the demo's regression", 1.0)
            figures["alert_min"] = wait_s / 60
        finally:
            os.killpg(process.pid, signal.SIGINT)
            stopping = time.monotonic()
            try:
                process.wait(20)
                print(f"stopped {time.monotonic() - stopping:.1f} s after Ctrl-C")
            except subprocess.TimeoutExpired:
                print("did not stop within 20 s of Ctrl-C")
                os.killpg(process.pid, signal.SIGKILL)
    report("first_use", options.seed, figures)


if __name__ == "__main__":
    main()
