"""The one running instance of this process: `instrument()` starts it, a fork renews it, leaving the process ends it."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailtrace.errors import ConfigError
from tailtrace.instrumentation import record
from tailtrace.instrumentation.exporter import Exporter
from tailtrace.instrumentation.resource import build_resource, keyed
from tailtrace.instrumentation.settings import Settings, read_settings
from tailtrace.instrumentation.transport import open_transport

if TYPE_CHECKING:
    from tailtrace.instrumentation.content import Content
    from tailtrace.instrumentation.metrics import MetricsExporter

log = logging.getLogger("tailtrace")


class Runtime:
    """What runs after `instrument()`: settings, this process's resource, and the exporter."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sample = settings.sample
        self.region_header = settings.region_header.lower().encode("latin-1", "replace")
        # Set where prompts and outputs are recorded.
        self.content = _content(settings) if settings.capture_content else None
        self.known_to_multiprocessing = False
        self._described: dict[str, Any] = {}
        self.resource: dict[str, Any] = {}
        self.exporter: Exporter
        self._metrics: MetricsExporter | None = None
        # Called at the end: what else of ours runs in this process.
        self.at_shutdown: list[Callable[[], None]] = []
        self.renew()

    def renew(self) -> None:
        """New instance id, queue, connection and thread-to-be: at start, and in a forked child."""
        self.resource = {**build_resource(self.settings), **self._described}
        self.exporter = Exporter(self.settings, self.resource, open_transport(self.settings))
        self._metrics = None
        self.at_shutdown = []
        record.count_loss = self.exporter.losses.add
        record.submit = self._first_put

    @property
    def metrics(self) -> MetricsExporter:
        """Takes points; made and started when first asked for."""
        if self._metrics is None:
            # Not imported before: most processes send no metrics.
            from tailtrace.instrumentation.metrics import MetricsExporter

            self._metrics = MetricsExporter(self.settings, self.resource)
            self._metrics.start()
        return self._metrics

    def shutdown(self, timeout_s: float) -> None:
        """Ends what runs; spans first, and metrics in what is left of the time."""
        end = time.monotonic() + timeout_s
        for stop in self.at_shutdown:
            stop()
        self.exporter.shutdown(timeout_s)
        if self._metrics is not None:
            self._metrics.shutdown(max(end - time.monotonic(), 0.05))

    def _first_put(self, item: Any) -> None:
        """The thread starts with the first item, so that a process which only forks never has one."""
        try:
            self.exporter.start()
            record.submit = self.exporter.put
            self._find_gpus()
        except RuntimeError:
            # No thread can start while the interpreter ends; the item is sent by shutdown's thread or counted there.
            pass
        self.exporter.put(item)

    def _find_gpus(self) -> None:
        """Names this process's GPUs, once and off every request's way: opening NVML takes milliseconds a GPU."""
        if not self.settings.find_gpus or "tailtrace.gpu_uuids" in self.resource or not _uses_cuda():
            return

        def find() -> None:
            try:
                from tailtrace.instrumentation.sampler.visible import gpu_uuids

                found, uncertain = gpu_uuids()
                if found and not uncertain and "tailtrace.gpu_uuids" not in self.resource:
                    self.describe(keyed({"gpu_uuids": ",".join(found)}))
            except Exception:
                log.exception("tailtrace: the GPUs of this process are not known")

        threading.Thread(target=find, name="tailtrace-gpus", daemon=True).start()

    def describe(self, attributes: dict[str, Any]) -> None:
        self._described.update(attributes)
        self.resource.update(attributes)
        self.exporter.describe(self.resource)


def _content(settings: Settings) -> Content:
    from tailtrace.instrumentation.content import Content

    log.info(
        "tailtrace: prompts and outputs are recorded, %s",
        "past the redaction hook" if settings.redact else "as they are: no redaction hook is set",
    )
    return Content(settings.content_chars, settings.redact or None)


def _uses_cuda() -> bool:
    """Whether this process has begun to use CUDA; a gateway on a GPU machine has not."""
    torch = sys.modules.get("torch")
    started = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    return bool(started and started()) or any(name in sys.modules for name in ("cupy", "pycuda", "tensorrt"))


active: Runtime | None = None


def instrument(
    service_name: str | None = None,
    *,
    endpoint: str | None = None,
    role: str | None = None,
    service_version: str | None = None,
    sample: int | None = None,
    resource: dict[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Start recording in this process. Nothing of this package runs before.

    Every argument has an environment variable and a default (docs/instrumentation.md); `settings` are the other fields
    of `Settings`. Call it once, as early as you like; a second call changes nothing and warns. An endpoint that cannot
    work is logged and leaves the application uninstrumented. Raises TypeError for an argument that does not exist.
    """
    global active
    chosen = read_settings(
        service_name=service_name,
        endpoint=endpoint,
        role=role,
        service_version=service_version,
        sample=sample,
        resource=resource,
        **settings,
    )
    if active is not None:
        log.warning("tailtrace: instrument() was called a second time in this process; the first call stands")
        return
    if chosen.disabled:
        log.info("tailtrace: disabled by OTEL_SDK_DISABLED")
        return
    try:
        active = Runtime(chosen)
    except ConfigError as error:
        log.error("tailtrace: not started: %s", error)
    except Exception:
        log.exception("tailtrace: not started")


def describe(**attributes: Any) -> None:
    """Say more about this process than was known at `instrument()`: engine, model, precision, tp, gpu_uuids, ...

    Names of the wire contract go without their prefix; dotted names are sent as they are.
    """
    if active is not None:
        active.describe(keyed(attributes))


def flush(timeout_s: float = 5.0) -> bool:
    """Send everything recorded so far. True when it was taken in time; blocks, so never call it in a request."""
    return active.exporter.flush(timeout_s) if active is not None else True


def shutdown(timeout_s: float | None = None) -> None:
    """Send what is left and stop, in at most `timeout_s` (the setting `shutdown_s` where None)."""
    global active
    runtime, active = active, None
    record.submit = _ignore
    if runtime is not None:
        runtime.shutdown(runtime.settings.shutdown_s if timeout_s is None else timeout_s)


def losses() -> dict[str, int]:
    """Spans lost in this process so far, by reason."""
    return active.exporter.losses.snapshot() if active is not None else {}


def _ignore(item: Any) -> None:
    """Where records go while nothing runs."""


def _before_fork() -> None:
    """A multiprocessing child leaves by os._exit and runs only its own finalizers: have one made there."""
    util = sys.modules.get("multiprocessing.util")
    if active is not None and util is not None and not active.known_to_multiprocessing:
        active.known_to_multiprocessing = True
        util.register_after_fork(active, _finalize_child)


def _finalize_child(runtime: Runtime) -> None:
    from multiprocessing.util import Finalize

    Finalize(None, shutdown, exitpriority=10)


def _after_fork() -> None:
    """In the child: nothing of the parent's queue, thread, connection or identity is used again."""
    record.streaming_now.clear()
    if active is None:
        return
    try:
        active.renew()
    except Exception:
        log.exception("tailtrace: not running in the forked child")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
atexit.register(shutdown)
