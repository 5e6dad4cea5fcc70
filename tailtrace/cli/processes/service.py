"""One running Tailtrace as its parent sees it: sockets bound, supervisor made, addresses told."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailtrace.cli.processes.ports import Door, check_free, listen, url
from tailtrace.cli.processes.supervisor import Supervisor
from tailtrace.errors import ConfigError
from tailtrace.version import VERSION

if TYPE_CHECKING:
    from tailtrace.ingest.settings import ServerSettings

OWNER_COMMAND = (sys.executable, "-m", "tailtrace.cli.processes.owner")


def doors(settings: ServerSettings) -> dict[str, Door]:
    """Every port that these settings switch on, by the name the owner knows it under."""
    all_doors = {
        "ui": Door("dashboard and API", "--port", settings.port),
        "otlp": Door("OTLP/HTTP", "--otlp-http-port", settings.otlp_http_port),
        "grpc": Door("OTLP/gRPC", "--otlp-grpc-port", settings.otlp_grpc_port),
        "clickhouse": Door("ClickHouse HTTP", "--clickhouse-port", settings.clickhouse_port),
    }
    return {name: door for name, door in all_doors.items() if door.port}


def run_service(
    settings: ServerSettings,
    *,
    on_ready: Callable[[], None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
    say: Callable[[str], None],
    owner_options: tuple[str, ...] = (),
) -> int:
    """Run until stopped; gives the exit code. Raises ConfigError or StoreLocked before anything has been started."""
    started = time.monotonic()
    sockets: dict[str, socket.socket] = {}
    opened = doors(settings)
    if not opened:
        raise ConfigError("every port is off: leave at least one of --port, --otlp-http-port, --otlp-grpc-port on")

    def ready() -> None:
        for line in _addresses(settings, opened):
            say(line)
        say(f"ready after {time.monotonic() - started:.1f} s; Ctrl-C stops")
        on_ready()

    try:
        for name, door in opened.items():
            if name == "grpc":  # gRPC can only bind for itself
                check_free(settings.host, door)
            else:
                sockets[name] = listen(settings.host, door)
        supervisor = Supervisor(
            (*OWNER_COMMAND, *owner_options),
            settings.model_dump_json(),
            sockets,
            on_ready=ready,
            on_stop=on_stop,
            say=say,
        )
        return supervisor.run()
    except ConfigError:
        _check_directory(settings)  # "already running there" says more than "port taken"
        raise
    finally:
        for sock in sockets.values():
            sock.close()


def _check_directory(settings: ServerSettings) -> None:
    if settings.data.is_dir():
        from tailtrace.ingest.store.lock import DirectoryLock

        DirectoryLock(settings.data).release()


def _addresses(settings: ServerSettings, opened: dict[str, Door]) -> list[str]:
    scheme = "https" if settings.tls_cert else "http"
    lines = [f"Tailtrace {VERSION}, data in {settings.data}"]
    lines += [f"  {door.what:<18} {url(settings.host, door.port, scheme)}" for door in opened.values()]
    return lines
