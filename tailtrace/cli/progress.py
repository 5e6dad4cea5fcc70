"""The demo's one line of progress: rewritten in a terminal, repeated now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

_REPEAT_S = 5.0


class Progress:
    """Takes the lab's messages and keeps one line up to date on `stream`."""

    def __init__(self, hours: float, address: str, stream: TextIO = sys.stdout) -> None:
        self._hours, self._address, self._stream = hours, address, stream
        self._rewrites = stream.isatty()
        self._open_line = 0
        self._wrote_at = float("-inf")

    def say(self, line: str) -> None:
        """A line of its own, which stays."""
        self._clear()
        print(line, file=self._stream, flush=True)

    def told(self, message: dict[str, Any]) -> None:
        """One message of the lab."""
        event = message["event"]
        if event == "history":
            mib = message["sent_bytes"] / 1024**2
            line = f"simulated history of {self._hours:g} h: {mib:.0f} MiB sent in {message['elapsed_s']:.0f} s"
            if message.get("finished"):
                self.say(line)
            else:
                self._update(line)
        elif event == "live":
            self.say(f"live: {message['rate']:g} simulated requests a second; open {self._address}")
        elif event == "failed":
            self.say(f"the lab ended: {message['message']}; the dashboard stays up")
        elif event == "ended" and message["code"] > 0:
            self.say(f"the lab ended with exit code {message['code']}; the dashboard stays up")

    def _update(self, line: str) -> None:
        if self._rewrites:
            self._stream.write("\r" + line.ljust(self._open_line))
            self._stream.flush()
            self._open_line = len(line)
        elif time.monotonic() - self._wrote_at >= _REPEAT_S:
            self._wrote_at = time.monotonic()
            print(line, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._open_line:
            self._stream.write("\r" + " " * self._open_line + "\r")
            self._open_line = 0
