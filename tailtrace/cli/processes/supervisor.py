"""The parent: starts the one owner of the data directory, watches it, restarts it, stops it.

It never loads the database, so nothing that goes wrong there can take it down. The owner tells it over a pipe, one JSON
object a line: `{"event": "ready"}`; `{"event": "beat"}` every 2 s while all its loops answer; and, when it gives up for
a reason that a restart would not mend, `{"event": "failed", "code": 2, "message": "..."}`.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

BEAT_S = 2.0
HUNG_S = 30.0
"""An owner without a sign of life for this long is killed: an engine can sit in its crash handler for minutes."""
STOP_S = 4.0
"""Time for an orderly stop before SIGKILL; everything acknowledged is in the journal by then."""
STEADY_S = 60.0
"""An owner that lived this long starts again at once; sooner deaths are answered with growing pauses."""
_LONGEST_PAUSE_S = 30.0
# What is freed goes back to the system. Of what the jobs free, 300 MiB less at rest after a burst: with its default the
# C library raises its threshold to whatever was freed last and keeps it; Arrow's own pool keeps it too. The engine's
# allocator keeps it for five seconds, twice a round of the jobs: some 100 MiB less under load.
_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_MALLOC_CONF": "dirty_decay_ms:1000",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "16777216",
}
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def pause_s(early_deaths: int) -> float:
    """Seconds to wait before the next start, after this many deaths in a row that came too early."""
    return 0.0 if early_deaths <= 1 else min(_LONGEST_PAUSE_S, 0.5 * 2.0 ** (early_deaths - 2))


@dataclass(slots=True)
class Owner:
    """One life of the owner child."""

    process: subprocess.Popen[bytes]
    pipe: int
    started: float
    seen_alive: float
    ready: bool = False
    failed: dict[str, Any] | None = None
    buffer: bytes = field(default=b"")


class Supervisor:
    """Runs the owner until told to stop. Single-threaded; to be used from the main thread."""

    def __init__(
        self,
        command: Sequence[str],
        settings_json: str,
        sockets: dict[str, socket.socket],
        *,
        on_ready: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        hung_s: float = HUNG_S,
    ) -> None:
        """`command` is the owner's command line; it reads `settings_json` from stdin and gets the sockets by name=fd.

        `on_ready` is called at the first readiness only, `on_stop` when the stop begins.
        """
        self._command = list(command)
        self._settings_json = settings_json
        self._sockets = sockets
        self._on_ready, self._on_stop, self._say = on_ready, on_stop, say
        self._hung_s = hung_s
        self._signals = 0
        self._told_ready = False

    def run(self) -> int:
        """Blocks until stopped by SIGTERM or SIGINT, or until the owner gives up. Gives the exit code."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        previous_fd = signal.set_wakeup_fd(wake_write)
        previous = {
            number: signal.signal(number, self._count) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        try:
            return self._run(wake_read)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_fd)
            os.close(wake_read)
            os.close(wake_write)

    def _count(self, number: int, frame: object) -> None:
        self._signals += 1

    def _run(self, wake: int) -> int:
        early_deaths = 0
        while True:
            owner = self._start()
            self._watch(owner, wake)
            code = self._reap(owner)
            if self._signals:
                return 0
            if owner.failed is not None:
                self._on_stop()
                self._say(f"tailtrace: {owner.failed['message']}")
                return int(owner.failed["code"])
            if not self._told_ready and code > 0:  # its own doing, not a crash: it would happen again
                self._on_stop()
                self._say("tailtrace: the start failed; the reason is above")
                return 1
            early_deaths = 1 if time.monotonic() - owner.started > STEADY_S else early_deaths + 1
            pause = pause_s(early_deaths)
            self._say(
                f"tailtrace: the storage process ended ({_how(code)}); starting it again"
                + (f" in {pause:g} s" * bool(pause))
            )
            if self._sleep(pause, wake):
                self._on_stop()
                return 0

    def _start(self) -> Owner:
        read, write = os.pipe()
        os.set_inheritable(write, True)
        fds = {name: sock.fileno() for name, sock in self._sockets.items()}
        arguments = [f"--parent={os.getpid()}", f"--status={write}", *(f"--{name}={fd}" for name, fd in fds.items())]
        process = subprocess.Popen(
            [*self._command, *arguments],
            stdin=subprocess.PIPE,
            env={**_MEMORY, **os.environ},
            pass_fds=(write, *fds.values()),
            # A group of its own: Ctrl-C reaches the parent alone, which then stops the owner in order.
            process_group=0,
        )
        os.close(write)
        os.set_blocking(read, False)
        assert process.stdin is not None
        try:
            process.stdin.write(self._settings_json.encode())
            process.stdin.close()
        except OSError:  # it died at once; the pipe below tells
            pass
        now = time.monotonic()
        return Owner(process, read, now, now)

    def _watch(self, owner: Owner, wake: int) -> None:
        """Returns when the owner is gone or must go; on a signal the orderly stop has been carried out."""
        with selectors.DefaultSelector() as selector:
            selector.register(owner.pipe, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            looked = time.monotonic()
            while True:
                events = selector.select(timeout=min(BEAT_S, self._hung_s))
                now = time.monotonic()
                if now - looked > 3 * BEAT_S:  # this process itself was stopped or starved: no judgement on the child
                    owner.seen_alive = now
                looked = now
                if any(key.fd == wake for key, _ in events):
                    os.read(wake, 512)
                if self._signals:
                    self._on_stop()
                    self._stop(owner, wake)
                    return
                if any(key.fd == owner.pipe for key, _ in events) and not self._read(owner):
                    return
                if now - owner.seen_alive > self._hung_s:
                    self._say(f"tailtrace: the storage process has shown no life for {self._hung_s:.0f} s; killing it")
                    return

    def _read(self, owner: Owner) -> bool:
        """Take what the owner says; False at the end of its pipe."""
        data = os.read(owner.pipe, 65536)
        owner.buffer += data
        *lines, owner.buffer = owner.buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            owner.seen_alive = time.monotonic()
            if message["event"] == "failed":
                owner.failed = message
            elif message["event"] == "ready":
                owner.ready = True
                if self._told_ready:
                    self._say("tailtrace: ready again")
                else:
                    self._told_ready = True
                    self._on_ready()
        return bool(data)

    def _stop(self, owner: Owner, wake: int) -> None:
        """SIGTERM, then SIGKILL after the grace time or at a second signal from the user."""
        owner.process.terminate()
        deadline = time.monotonic() + STOP_S
        asked = self._signals
        while owner.process.poll() is None and time.monotonic() < deadline and self._signals == asked:
            try:
                owner.process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue

    def _reap(self, owner: Owner) -> int:
        """Make sure the owner and whatever it started are gone; gives its return code."""
        try:
            owner.process.wait(timeout=0.5 if owner.process.poll() is None and not self._signals else 0)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(owner.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        os.close(owner.pipe)
        return owner.process.wait()

    def _sleep(self, seconds: float, wake: int) -> bool:
        """Wait; True when a signal came."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            while not self._signals and (left := deadline - time.monotonic()) > 0:
                if selector.select(timeout=left):
                    os.read(wake, 512)
        return bool(self._signals)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
