"""The counter sampler beside a server on the same machine: started when the server is ready, ended with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailtrace.cli.processes.companion import Companion
from tailtrace.cli.processes.ports import url
from tailtrace.errors import ConfigError

if TYPE_CHECKING:
    from tailtrace.ingest.settings import ServerSettings

_END_S = 2.0


@contextmanager
def sampling(settings: ServerSettings) -> Iterator[Companion]:
    """The sampler as a child that sends to this server's OTLP/HTTP door; whatever it does, the server goes on."""
    if not settings.otlp_http_port:
        raise ConfigError("--sample sends through OTLP/HTTP: --otlp-http-port must not be 0")
    endpoint = url(settings.host, settings.otlp_http_port)
    command = [
        sys.executable, "-m", "tailtrace", "sample", f"--endpoint={endpoint}", f"--parent={os.getpid()}",
    ]  # fmt: skip
    companion = Companion(command, lambda message: None, {**os.environ, "TAILTRACE_TOKEN": settings.token})
    try:
        yield companion
    finally:
        companion.end(_END_S)
