"""An asyncio loop in a thread of its own: start, stop, and a sign of life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tailtrace.errors import TailtraceError

log = logging.getLogger(__name__)

Serve = Callable[[asyncio.Event, Callable[[], None]], Awaitable[None]]
"""A server: runs until the event is set, and calls the function when it really listens."""


class LoopThread:
    """Runs `serve(stop, listening)` on a loop of its own."""

    def __init__(self, name: str, serve: Serve) -> None:
        self.name = name
        self._serve = serve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._listening = threading.Event()
        self._failure: BaseException | None = None
        self._answered = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"tailtrace-{name}", daemon=True)

    def start(self, timeout_s: float = 60) -> None:
        """Returns once the server listens. Raises what kept it from that."""
        self._thread.start()
        if not self._listening.wait(timeout_s):
            raise TailtraceError(f"{self.name} did not start within {timeout_s:.0f} s")
        if self._failure is not None:
            raise self._failure

    def ask_for_life(self) -> float:
        """Ask the loop to answer; gives the seconds since it last did."""
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._answer)
        return time.monotonic() - self._answered

    def ask_to_stop(self) -> None:
        """Ask the server to finish what it has in hand."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # closed already
                self._loop.call_soon_threadsafe(self._stop.set)

    def stop(self, timeout_s: float) -> None:
        """Ask the server to finish, and wait for it."""
        self.ask_to_stop()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning("%s did not stop within %.1f s", self.name, timeout_s)

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # SystemExit too: uvicorn leaves by it when its start fails
            self._failure = error
            if self._listening.is_set():
                log.exception("%s ended", self.name)
        finally:
            self._listening.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await self._serve(self._stop, self._listening.set)


async def serve_asgi(
    app: Any, sock: Any, stop: asyncio.Event, listening: Callable[[], None], *, grace_s: int = 1, **options: Any
) -> None:
    """Serve an ASGI app on a listening socket with uvicorn until `stop` is set."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace_s,
        **options,
    )
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve(sockets=[sock]))
    while not server.started and not task.done():
        await asyncio.sleep(0.01)
    if not task.done():
        listening()
        waiter = asyncio.ensure_future(stop.wait())
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        server.should_exit = True
    await task
