"""How a command speaks to the owner of a data directory: a socket inside it, for whoever may write there.

One JSON object a line in either direction, one question a connection, one connection at a time.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tailtrace.errors import ConfigError, StoreError, TailtraceError

log = logging.getLogger(__name__)

Command = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_NAME = "control.sock"
_LONGEST_PATH = 100  # bytes of an address of this family, less a few
_LONGEST_QUESTION = 65536


class Control:
    """Answers questions by the command they name."""

    def __init__(self, data: Path, commands: Mapping[str, Command]) -> None:
        """Listen in `data`, whose lock this process holds: a socket that is there already is a dead owner's."""
        (data / _NAME).unlink(missing_ok=True)
        self._commands = commands
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _address(data) as address:
            self._listener.bind(address)
            os.chmod(data / _NAME, 0o600)
            self._listener.listen(4)
        threading.Thread(target=self._run, name="tailtrace-control", daemon=True).start()

    def stop(self) -> None:
        """Take no further question."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                with connection:
                    self._answer(connection)
            except OSError as error:
                log.info("whoever asked is gone: %s", error)

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rwb") as lines:
            connection.settimeout(5.0)
            question = lines.readline(_LONGEST_QUESTION)
            connection.settimeout(None)
            try:
                asked = json.loads(question)
                answer: Mapping[str, Any] = self._commands[str(asked["command"])](asked)
            except TailtraceError as error:
                answer = {"error": str(error), "user": isinstance(error, ConfigError)}
            except Exception as error:
                log.exception("a command failed")
                answer = {"error": f"{type(error).__name__}: {error}", "user": False}
            lines.write(json.dumps(answer).encode() + b"\n")
            lines.flush()


def ask(data: Path, command: str, **arguments: Any) -> dict[str, Any]:
    """The owner's answer. Raises StoreError when it has none or failed, ConfigError when the question is at fault."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with _address(data) as address:
                connection.connect(address)
            with connection.makefile("rwb") as lines:
                lines.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
                lines.flush()
                line = lines.readline()
        except OSError as error:
            raise StoreError(f"the process that owns {data} does not answer: {error}") from None
    if not line:
        raise StoreError(f"the process that owns {data} ended before it was done")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise ConfigError(answer["error"]) if answer["user"] else StoreError(answer["error"])
    return answer


@contextmanager
def _address(data: Path) -> Iterator[str]:
    """The socket's path, by way of an open folder where it is too long for an address."""
    path = str(data.resolve() / _NAME)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{_NAME}"
    finally:
        os.close(folder)
