"""The parts of `tailtrace up` as processes of their own, on a ClickHouse server: any number of each."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from tailtrace.ingest.settings import ServerSettings

Threads = Annotated[int, typer.Option("--threads", min=1, max=64, help="Tasks that run at once in this worker.")]


def ingest(
    data: options.Data = None,
    host: options.Host = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Port of /healthz, /readyz and /metrics; 0 = off (TAILTRACE_PORT).")
    ] = None,
    otlp_http_port: options.OtlpHttpPort = None,
    otlp_grpc_port: options.OtlpGrpcPort = None,
    insecure: options.Insecure = None,
    config: options.Config = None,
) -> None:
    """Run a receiver: OTLP in, journal, ClickHouse server. Each has a --data of its own, for its journal.

    Telemetry is taken while the server is away, up to the journal's limit.
    """
    from tailtrace.cli.processes.service import run_service

    flags = {
        "data": data, "host": host, "port": port, "otlp_http_port": otlp_http_port, "otlp_grpc_port": otlp_grpc_port,
        "insecure": insecure, "jobs": False,
    }  # fmt: skip
    raise typer.Exit(run_service(_settings(flags, config), say=typer.echo, owner_options=("--probes-only",)))


def dashboard(
    host: options.Host = None,
    port: options.Port = None,
    insecure: options.Insecure = None,
    config: options.Config = None,
) -> None:
    """Run dashboard and API alone. It keeps nothing on disk."""
    from tailtrace.cli.processes.service import run_service

    flags = {
        "host": host, "port": port, "insecure": insecure, "jobs": False, "otlp_http_port": 0, "otlp_grpc_port": 0,
        "clickhouse_port": 0,
    }  # fmt: skip
    raise typer.Exit(run_service(_settings(flags, config), say=typer.echo))


def worker(threads: Threads = 2, config: options.Config = None) -> None:
    """Run a Celery worker for the background jobs: `celery -A tailtrace.analytics.celery_app worker -P threads`."""
    _celery(config, "worker", "-P", "threads", "-c", str(threads), "--loglevel", "INFO", "--without-gossip")


def beat(config: options.Config = None) -> None:
    """Run Celery's beat, which puts the jobs into the queue. Two of them do no harm."""
    _celery(config, "beat", "--loglevel", "WARNING", "--scheduler", "tailtrace.analytics.heartbeat:MarkingScheduler")


def drain(
    data: options.Data = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for the server.")] = 600.0,
    config: options.Config = None,
) -> None:
    """Store what a stopped receiver left in its journal, then say so: its --data can be thrown away after that."""
    from tailtrace.errors import StoreError
    from tailtrace.ingest.pipeline import Pipeline
    from tailtrace.ingest.store import open_store_when_there
    from tailtrace.ingest.store.lock import DirectoryLock

    settings = _settings({"data": data}, config)
    lock = DirectoryLock(settings.data)
    store = open_store_when_there(settings)
    pipeline = Pipeline(store, settings.data / "journal", settings)
    pipeline.start(recovery_wait_s=0)
    try:
        pipeline.flush(timeout_s)
        typer.echo(f"{pipeline.counters()['stored_segments']} segments stored, nothing is left")
    except TimeoutError as error:
        raise StoreError(str(error)) from None
    finally:
        pipeline.stop(1.0)
        store.close()
        lock.release()


def _settings(flags: dict[str, Any], config: Path | None) -> ServerSettings:
    from tailtrace.cli.configuration import load_settings
    from tailtrace.errors import ConfigError

    settings = load_settings(flags, config)
    if not settings.clickhouse_url:
        raise ConfigError(
            "this part needs a ClickHouse server that it shares with the others: set TAILTRACE_CLICKHOUSE_URL, "
            "or run everything in one process with `tailtrace up`"
        )
    return settings


def _celery(config: Path | None, *arguments: str) -> None:
    from tailtrace.errors import ConfigError

    settings = _settings({}, config)
    if not settings.broker_url:
        raise ConfigError("workers and beat meet at a broker: set TAILTRACE_BROKER_URL, redis://host:6379/0")
    # Whoever starts Celery reads the settings from the environment.
    told = settings.model_dump(mode="json", exclude_unset=True)
    environment = {f"TAILTRACE_{name.upper()}": str(value) for name, value in told.items() if value is not None}
    command = [sys.executable, "-m", "celery", "-A", "tailtrace.analytics.celery_app", *arguments]
    sys.stdout.flush()
    os.execve(sys.executable, command, {**os.environ, **environment})
