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


def _start(store: Store, settings: ServerSettings) -> tuple[uvicorn.Server, threading.Thread, str]:
    """A real server on a free port, and its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(store, settings), log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.started
    return server, thread, f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def _shared(_engine: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the tests of a module: it keeps nothing between requests, and its scripts stay in the browser."""
    settings = ServerSettings(data=tmp_path_factory.mktemp("served"))
    server, thread, address = _start(_engine, settings)
    yield address
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def serve(settings: ServerSettings, _engine: Store, _shared: str) -> Iterator[Callable[..., str]]:
    """serve(store, **settings) gives the address of a server: the shared one, or one of its own where it differs."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(store: Store, **changes: Any) -> str:
        if store is _engine and not changes:
            return _shared
        server, thread, address = _start(store, settings.model_copy(update=changes))
        running.append((server, thread))
        return address

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


@pytest.fixture(scope="module")
def _context(_chromium: Any) -> Iterator[Any]:
    context = _chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture
def page(_context: Any, _shared: str) -> Iterator[Any]:
    """A page of a profile that knows the scripts alone. What it asked for is in `page.asked`; a page error fails
    the test.
    """
    page = _context.new_page()
    page.asked = []
    errors: list[str] = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    page.close()
    _context.clear_cookies()
    clean = _context.new_page()
    _context.new_cdp_session(clean).send(
        "Storage.clearDataForOrigin", {"origin": _shared, "storageTypes": "local_storage"}
    )
    clean.close()
    assert errors == []
