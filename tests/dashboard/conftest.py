"""A served dashboard over seeded data, and a browser to look at it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from dashboard_seed import HOSTILE, MS, TRACE, Spans, spans_of
from seeding import SECOND, T0, insert_requests, insert_traces, judge_traces, request

from tailtrace.dashboard import create_app
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import encode_traces


@pytest.fixture
def seeded(store: Store, tmp_path: Path) -> Store:
    """120 simulated requests of `api`, and one real trace of `gateway` with hostile text in it."""
    rows = [
        request(
            n,
            duration_ns=(100 + n) * MS,
            QueueNs=n * MS,
            DecodeNs=50 * MS,
            TtftNs=20 * MS,
            Simulated=True,
            end_ns=T0 - n * SECOND,
        )
        for n in range(1, 121)
    ]
    insert_requests(store, rows)
    gateway: Spans = [
        (1, 0, HOSTILE, 0, 100, {"kind": 2, "tailtrace.request": True, "tailtrace.route": HOSTILE}),
        (2, 1, "auth", 0, 10, {"tailtrace.stage": "auth"}),
        (3, 1, "queue", 10, 30, {"tailtrace.stage": "queue", "note": HOSTILE}),
        (4, 1, "decode", 30, 90, {"tailtrace.stage": "decode"}),
    ]
    insert_traces(store, tmp_path, [encode_traces({"service.name": "gateway"}, spans_of(TRACE, gateway))], "seeded")
    judge_traces(store, [TRACE])
    return store


@pytest.fixture
def serve(settings: ServerSettings) -> Iterator[Callable[..., str]]:
    """serve(store, **settings) starts a real server on a free port and gives its address."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(store: Store, **changes: Any) -> str:
        app = create_app(store, settings.model_copy(update=changes))
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        running.append((server, thread))
        deadline = time.monotonic() + 20
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def _chromium() -> Iterator[Any]:
    # Playwright keeps an event loop running in this thread: not longer than these tests, or others cannot run theirs.
    playwright = pytest.importorskip("playwright.sync_api")
    if not Path("/usr/bin/chromium").exists():
        pytest.skip("needs /usr/bin/chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(_chromium: Any) -> Iterator[Any]:
    """A page of a clean browser profile. What it asked for is in `page.asked`; a page error fails the test."""
    context = _chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
    context.set_default_timeout(20_000)
    page = context.new_page()
    page.asked = []
    errors: list[str] = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []
