"""A child beside the owner that tells its progress: started when the server is ready, ended with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Companion:
    """Runs `command` and hands each JSON line of its stdout to `told`, in a thread."""

    def __init__(
        self, command: Sequence[str], told: Callable[[dict[str, Any]], None], environment: Mapping[str, str]
    ) -> None:
        self._command, self._told, self._environment = list(command), told, dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """To be called from the main thread: a child ends with the thread that started it."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=self._environment, process_group=0
        )
        threading.Thread(target=self._listen, args=(self._process,), name="tailtrace-companion", daemon=True).start()

    def ask_to_stop(self) -> None:
        """SIGTERM to it and to all that it started."""
        self._signal(signal.SIGTERM)

    def end(self, timeout_s: float = 0.5) -> None:
        """Wait a little, then kill whatever is left of its group."""
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                print(line.decode(errors="replace").rstrip(), file=sys.stderr, flush=True)
            else:
                self._told(message)
        self._told({"event": "ended", "code": process.wait()})
