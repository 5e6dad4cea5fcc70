"""The owner of the data directory: store, pipeline, doors, pages and jobs in one process, each in threads of its own.

Started by the supervisor as `python -m tailtrace.cli.processes.owner` with file descriptors for its status and its
listening sockets, and its settings as JSON on stdin.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtrace.cli import exit_code
from tailtrace.cli.processes.lifeline import die_with_parent
from tailtrace.cli.processes.supervisor import BEAT_S, STOP_S
from tailtrace.cli.processes.without_pandas import keep_pandas_out
from tailtrace.errors import ConfigError, SchemaTooNew, StoreLocked, TailtraceError
from tailtrace.ingest.rates import Rates

if TYPE_CHECKING:
    from tailtrace.ingest.pipeline import Pipeline
    from tailtrace.ingest.settings import ServerSettings

log = logging.getLogger("tailtrace")

_LOOP_HUNG_S = 15.0
"""A loop that has not answered for this long counts as hung: no beat is sent any more."""


_LONGEST_START_S = 600.0


class Status:
    """The pipe to the supervisor. A broken one means that the supervisor is gone."""

    def __init__(self, fd: int, broken: Callable[[], None]) -> None:
        self._fd = fd
        self._broken = broken
        self._lock = threading.Lock()

    def send(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}) + "\n"
        with self._lock:
            try:
                os.write(self._fd, line.encode())
            except OSError:
                self._broken()


def main() -> None:
    """Entry point of the child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--status", type=int, required=True)
    parser.add_argument("--ui", type=int, default=-1)
    parser.add_argument("--otlp", type=int, default=-1)
    parser.add_argument("--clickhouse", type=int, default=-1)
    parser.add_argument("--probes-only", action="store_true", help="no pages: a receiver of its own")
    arguments = parser.parse_args()

    keep_pandas_out()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(arguments.parent)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr
    )
    for chatty in ("uvicorn", "celery", "httpx", "numba", "clickhouse_connect"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.getLogger("kombu").setLevel(logging.ERROR)  # it warns that a queue in memory has no host name

    status = Status(arguments.status, broken=stop.set)
    given = {"ui": arguments.ui, "otlp": arguments.otlp, "clickhouse": arguments.clickhouse}
    sockets = {name: _adopt(fd) for name, fd in given.items() if fd >= 0}
    try:
        from tailtrace.ingest.settings import ServerSettings

        settings = ServerSettings.model_validate_json(sys.stdin.read())
        owner = OwnerProcess(settings, sockets, status, pages=not arguments.probes_only)
        with starting(status):
            owner.start()
    except (ConfigError, StoreLocked, SchemaTooNew) as error:
        status.send("failed", code=exit_code(error), message=str(error))
        _leave(exit_code(error))
    except Exception:
        log.exception("the start failed")
        _leave(1)
    status.send("ready")
    beat = threading.Thread(target=owner.beat, name="tailtrace-beat", args=(stop,), daemon=True)
    beat.start()
    owner.warm_up()
    stop.wait()
    # Whatever hangs, the process is gone in time: all that was acknowledged is in the journal.
    guard = threading.Timer(STOP_S - 0.5, lambda: _leave(0))
    guard.daemon = True
    guard.start()
    owner.stop()
    _leave(0)


@contextlib.contextmanager
def starting(status: Status) -> Iterator[None]:
    """Beats while the start is going on: compiling at the first start and a long journal take as long as they take."""
    done = threading.Event()
    ends = time.monotonic() + _LONGEST_START_S

    def beat() -> None:
        while not done.wait(BEAT_S) and time.monotonic() < ends:
            status.send("beat")

    threading.Thread(target=beat, name="tailtrace-starting", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _adopt(fd: int) -> socket.socket:
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    return sock


def _grpc_tls(certificate: Path, key: Path) -> Any:
    import grpc

    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])


def _leave(code: int) -> None:
    """End without the interpreter's own tear-down, which threads of the engine and of gRPC do not survive."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class OwnerProcess:
    """Everything the owner holds, started and stopped in order."""

    def __init__(
        self, settings: ServerSettings, sockets: dict[str, socket.socket], status: Status, *, pages: bool = True
    ) -> None:
        self._settings = settings
        self._sockets = sockets
        self._status = status
        self._pages = pages
        self._pipeline: Pipeline | None = None
        self._started = time.time()
        self._rates = Rates(("accepted_items", "stored_items"))
        self._undo = contextlib.ExitStack()
        self._loops: list[Any] = []

    def start(self) -> None:
        """Store first, then what it still owes to its journal, then doors, jobs and pages."""
        from tailtrace.cli.processes.kernels import Compiling
        from tailtrace.cli.processes.loops import LoopThread
        from tailtrace.ingest.losses import RejectionLog
        from tailtrace.ingest.pipeline import Pipeline
        from tailtrace.ingest.receiver import Counters
        from tailtrace.ingest.store import open_store_when_there
        from tailtrace.ingest.store.lock import DirectoryLock

        settings = self._settings
        receives = "otlp" in self._sockets or settings.otlp_grpc_port
        compiling = Compiling([part for part, used in (("doors", receives), ("jobs", settings.jobs)) if used])
        if compiling:
            log.info("first start of this installation: compiling, some ten seconds")
        if settings.clickhouse_url and receives:  # the embedded store has a lock of its own
            settings.data.mkdir(parents=True, exist_ok=True)
            self._undo.callback(DirectoryLock(settings.data).release)
        self._store = open_store_when_there(settings)
        self._undo.callback(self._store.close)
        self._counters = Counters()
        if receives or not settings.clickhouse_url:
            if not settings.clickhouse_url:
                self._free_space()
            self._pipeline = Pipeline(self._store, settings.data / "journal", settings)
            # A server that is away is no reason to keep senders waiting.
            self._pipeline.start(recovery_wait_s=2.0 if settings.clickhouse_url else 60.0)
            self._undo.callback(self._pipeline.stop, 2.0)
            self._undo.callback(RejectionLog(self._store, self._counters.snapshot).start())
        self._start_control()
        compiling.wait()
        self._start_jobs()
        self._start_scraping()
        if receives:
            self._start_loop(LoopThread("doors", self._serve_doors))
        if "ui" in self._sockets:
            self._start_loop(LoopThread("pages", self._serve_pages))
        if "clickhouse" in self._sockets:
            self._start_loop(LoopThread("clickhouse", self._serve_clickhouse))

    def stop(self) -> None:
        """All doors at once, then last started, first stopped."""
        for loop in self._loops:
            loop.ask_to_stop()
        try:
            self._undo.close()
        except Exception:
            log.exception("the stop was not clean; the journal holds what the store does not")

    def beat(self, stop: threading.Event) -> None:
        """Tell the supervisor every two seconds that all loops answer."""
        while not stop.wait(BEAT_S):
            if self._pipeline is not None:
                self._rates.note(time.monotonic(), self._pipeline.counters())
            if max((loop.ask_for_life() for loop in self._loops), default=0.0) < _LOOP_HUNG_S:
                self._status.send("beat")

    def warm_up(self) -> None:
        """Load the compiled code that the jobs need, off the way to the first answer; what is loaded by then stays."""

        def load_now() -> None:
            try:
                from tailtrace.analytics import warm_up

                warm_up()
            except ImportError:
                pass
            gc.collect()
            gc.freeze()  # else walked again and again, a tenth of a second each, while pages and doors wait

        threading.Thread(target=load_now, name="tailtrace-warm-up", daemon=True).start()

    def health(self) -> dict[str, Any]:
        """What /healthz, /readyz and the Health page tell."""
        from tailtrace.version import VERSION

        return {
            "version": VERSION,
            "pid": os.getpid(),
            "uptime_s": round(time.time() - self._started, 1),
            "pipeline": self._pipeline.counters() if self._pipeline else {},
            "receiver": self._counters.snapshot(),
            "rates": self._rates.per_second(),
            "disk_free_bytes": shutil.disk_usage(self._settings.data).free if self._pipeline else 0,
        }

    def _readiness(self) -> dict[str, Any]:
        """Whether the store takes and gives, and how far behind it is. A reason's text stays inside: it may name
        paths."""
        from tailtrace.ingest.own_metrics import job_lags

        waiting = self._pipeline.counters()["journal_bytes"] if self._pipeline else 0
        try:
            lags = job_lags(self._store)
        except TailtraceError:
            log.exception("not ready")
            return {"status": "the store does not answer", "journal_bytes": waiting}
        return {"status": "ready", "journal_bytes": waiting, "lag_s": {job: round(lag, 1) for job, lag in lags.items()}}

    def _start_loop(self, loop: Any) -> None:
        loop.start()
        self._loops.append(loop)
        self._undo.callback(loop.stop, 1.5)

    def _start_jobs(self) -> None:
        if not self._settings.jobs:
            return
        from tailtrace.cli.processes.jobs import Jobs

        jobs = Jobs(self._store, self._settings, self._progress)
        jobs.start()
        self._undo.callback(jobs.stop)

    def _free_space(self) -> None:
        """A disk that is full is freed before the journal is taken up, which needs some room."""
        from tailtrace.ingest.retention import enforce

        try:
            enforce(self._store, self._settings)
        except TailtraceError:
            log.exception("the store cannot be brought within its budget now; it is tried again every minute")

    def _start_control(self) -> None:
        """What only the owner of an embedded store can do for a command."""
        from tailtrace.ingest.store.embedded import EmbeddedStore

        store = self._store
        if not isinstance(store, EmbeddedStore):
            return
        from tailtrace.cli.processes.control import Control
        from tailtrace.ingest.backup import backup_running

        def backup(asked: Mapping[str, Any]) -> dict[str, Any]:
            made = backup_running(store, self._settings.data, Path(str(asked["target"])))
            return {"files": len(made.files), "bytes": made.bytes}

        try:
            self._undo.callback(Control(self._settings.data, {"backup": backup}).stop)
        except OSError as error:  # a file system without sockets, or a full one
            log.warning("`tailtrace backup` will find nobody to ask: no socket in %s: %s", self._settings.data, error)

    def _start_scraping(self) -> None:
        if not self._settings.scrape:
            return
        from tailtrace.ingest.scraping import Scraper, parse_targets

        targets = parse_targets(self._settings.scrape)
        if self._pipeline is None:
            raise ConfigError("scrape: this process receives nothing; set it where OTLP is received")
        scraper = Scraper(targets, self._pipeline)
        scraper.start()
        self._undo.callback(scraper.stop)

    def _progress(self) -> int:
        """Differs once there is something new to judge."""
        return self._pipeline.counters()["stored_items"] if self._pipeline else int(time.monotonic())

    def _tls(self) -> dict[str, Any]:
        """Options of every HTTP server."""
        settings = self._settings
        if settings.tls_cert is None:
            return {}
        return {"ssl_certfile": str(settings.tls_cert), "ssl_keyfile": str(settings.tls_key)}

    async def _serve_doors(self, stop: Any, listening: Callable[[], None]) -> None:
        from tailtrace.cli.processes.loops import serve_asgi
        from tailtrace.ingest.receiver import create_app, create_grpc_server

        assert self._pipeline is not None
        grpc = None
        if self._settings.otlp_grpc_port:
            grpc = create_grpc_server(self._pipeline, self._settings, self._counters)
            host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
            address = f"{host}:{self._settings.otlp_grpc_port}"
            if self._settings.tls_cert and self._settings.tls_key:
                grpc.add_secure_port(address, _grpc_tls(self._settings.tls_cert, self._settings.tls_key))
            else:
                grpc.add_insecure_port(address)
            await grpc.start()
        try:
            if "otlp" in self._sockets:
                app = create_app(self._pipeline, self._settings, self._counters)
                await serve_asgi(
                    app,
                    self._sockets["otlp"],
                    stop,
                    listening,
                    http="httptools",
                    ws="none",
                    lifespan="auto",
                    **self._tls(),
                )
            else:
                listening()
                await stop.wait()
        finally:
            if grpc is not None:
                await grpc.stop(grace=0.5)

    async def _serve_pages(self, stop: Any, listening: Callable[[], None]) -> None:
        from tailtrace.cli.processes.loops import serve_asgi
        from tailtrace.cli.processes.probes import ASGIApp, Probes, nothing_here
        from tailtrace.ingest.own_metrics import exposition
        from tailtrace.ingest.tokens import Tokens

        pages: ASGIApp = nothing_here
        if self._pages:
            from tailtrace.dashboard import create_app

            pages = create_app(self._store, self._settings, self.health)
        tokens = Tokens(self._settings)

        def metrics() -> str:
            return exposition(self.health(), self._store)

        app = Probes(pages, self._readiness, metrics, lambda given: tokens.header_allows(given, "read"))
        await serve_asgi(app, self._sockets["ui"], stop, listening, **self._tls())

    async def _serve_clickhouse(self, stop: Any, listening: Callable[[], None]) -> None:
        from tailtrace.cli.processes.loops import serve_asgi
        from tailtrace.ingest.clickhouse_http import create_clickhouse_app
        from tailtrace.ingest.store.embedded import EmbeddedStore
        from tailtrace.ingest.tokens import Tokens

        if not isinstance(self._store, EmbeddedStore):
            raise ConfigError("--clickhouse-port serves the embedded database; with a ClickHouse server, ask that one")
        tokens = Tokens(self._settings)
        app = create_clickhouse_app(self._store, lambda token: tokens.allows(token, "read"))
        await serve_asgi(app, self._sockets["clickhouse"], stop, listening, **self._tls())


if __name__ == "__main__":
    main()
