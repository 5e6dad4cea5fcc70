"""`tailtrace demo`: the server with a day of made history in it and a live service in miniature in front."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from tailtrace.ingest.settings import ServerSettings

_HISTORY, _LIVE = "demo", "live"
"""The built-in demo is a day of one scenario, then another whose requests are short enough to be watched."""


def demo(
    scenario: Annotated[str, typer.Option("--scenario", help="Built-in scenario, or a TOML file.")] = _HISTORY,
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same history.")] = 1,
    hours: Annotated[float, typer.Option("--hours", min=0, max=24 * 31, help="Length of the made history.")] = 24,
    rate: Annotated[float, typer.Option("--rate", min=0, max=1000, help="Live requests a second; 0 = none.")] = 25,
    data: options.Data = None,
    host: options.Host = None,
    port: options.Port = None,
    otlp_http_port: options.OtlpHttpPort = None,
    otlp_grpc_port: options.OtlpGrpcPort = None,
) -> None:
    """Show everything on simulated data: a day of history with one regression in it, then live requests.

    Without --data (or TAILTRACE_DATA) the data is in a temporary directory and goes when the demo ends.
    """
    import tempfile

    flags = {"host": host, "port": port, "otlp_http_port": otlp_http_port, "otlp_grpc_port": otlp_grpc_port}
    chosen = data or (Path(os.environ["TAILTRACE_DATA"]) if os.environ.get("TAILTRACE_DATA") else None)
    if chosen is not None:
        raise typer.Exit(_run({**flags, "data": chosen}, scenario, seed, hours, rate))
    with tempfile.TemporaryDirectory(prefix="tailtrace-demo-", ignore_cleanup_errors=True) as directory:
        code = _run({**flags, "data": Path(directory)}, scenario, seed, hours, rate)
    raise typer.Exit(code)


def _run(flags: dict[str, Any], scenario: str, seed: int, hours: float, rate: float) -> int:
    from tailtrace.cli.configuration import load_settings
    from tailtrace.cli.processes.companion import Companion
    from tailtrace.cli.processes.ports import url
    from tailtrace.cli.processes.service import run_service
    from tailtrace.cli.progress import Progress
    from tailtrace.errors import ConfigError
    from tailtrace.lab import Scenario

    Scenario.load(scenario)  # a wrong name is told before anything is started
    live = _LIVE if scenario == _HISTORY else scenario
    settings = _on_free_ports(load_settings(flags), given={name for name, value in flags.items() if value is not None})
    if not settings.otlp_http_port:
        raise ConfigError("the demo sends through OTLP/HTTP: --otlp-http-port must not be 0")
    progress = Progress(hours, url(settings.host, settings.port) if settings.port else "")
    endpoint = url(settings.host, settings.otlp_http_port)
    command = [
        sys.executable, "-m", "tailtrace.cli.processes.lab", f"--parent={os.getpid()}", f"--endpoint={endpoint}",
        f"--scenario={scenario}", f"--live-scenario={live}", f"--seed={seed}", f"--hours={hours}", f"--rate={rate}",
    ]  # fmt: skip
    lab = Companion(command, progress.told, {**os.environ, "TAILTRACE_TOKEN": settings.token})
    try:
        return run_service(settings, on_ready=lab.start, on_stop=lab.ask_to_stop, say=progress.say)
    finally:
        lab.end()


def _on_free_ports(settings: ServerSettings, given: set[str]) -> ServerSettings:
    """Ports that were asked for stay; a default one that is taken is exchanged for a free one, and said."""
    from tailtrace.cli.processes.ports import free_port
    from tailtrace.cli.processes.service import doors

    moved: dict[str, int] = {}
    for door in doors(settings).values():
        field = door.option.removeprefix("--").replace("-", "_")
        if field in given or f"TAILTRACE_{field.upper()}" in os.environ:
            continue
        free = free_port(settings.host, door)
        if free.port != door.port:
            moved[field] = free.port
            typer.echo(f"port {door.port} ({door.what}) is taken: using {free.port}")
    return settings.model_copy(update=moved)
