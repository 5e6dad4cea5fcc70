"""Listens for XID errors: the driver tells of them as they happen, and only to those who asked before."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.nvml import LOST_CODES, Device, Session, reason_of
from tailtrace.instrumentation.sampler.series import Series

log = logging.getLogger("tailtrace")

XID_EVENT: Final = 8
_WAIT_MS: Final = 500
_TIMEOUT: Final = 10


class XidListener:
    """One thread for all GPUs of a session. `stop` returns once the driver's wait has returned."""

    def __init__(
        self, session: Session, devices: Iterable[Device], absences: Absences, sink: Callable[[list[Point]], None],
        counts: dict[tuple[str, int], tuple[int, int]],
    ) -> None:  # fmt: skip
        """`counts`: errors so far and since when, by (uuid, xid); kept by the caller over sessions."""
        self._api, self._absences, self._sink, self._counts = session.api, absences, sink, counts
        self._devices = [device for device in devices if not device.is_instance]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        api = self._api
        try:
            events = api.nvmlEventSetCreate()
        except api.NVMLError as error:
            self._all_absent(reason_of(error.value))
            return
        listening = 0
        for device in self._devices:
            try:
                api.nvmlDeviceRegisterEvents(device.handle, XID_EVENT, events)
                self._absences.clear("hw.errors/xid", device.uuid)
                listening += 1
            except api.NVMLError as error:
                self._absences.note("hw.errors/xid", reason_of(error.value), device.uuid)
        if not listening:
            api.nvmlEventSetFree(events)
            return
        self._thread = threading.Thread(target=self._run, args=(events,), name="tailtrace-xid", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(4 * _WAIT_MS / 1000)

    def _run(self, events: Any) -> None:
        api = self._api
        try:
            while not self._stop.is_set():
                try:
                    self._happened(api.nvmlEventSetWait(events, _WAIT_MS))
                except api.NVMLError as error:
                    if error.value in LOST_CODES:
                        return  # the sampler finds out by its own calls, and opens a new session
                    if error.value != _TIMEOUT:
                        self._all_absent(reason_of(error.value))
                        self._stop.wait(_WAIT_MS / 1000)
        finally:
            try:
                api.nvmlEventSetFree(events)
            except api.NVMLError:
                pass

    def _happened(self, data: Any) -> None:
        if data.eventType != XID_EVENT:
            return
        uuid = self._uuid_of(data.device)
        xid, now = int(data.eventData), time.time_ns()
        count, start = self._counts.get((uuid, xid), (0, now - 1))
        self._counts[uuid, xid] = (count + 1, start)
        log.warning("tailtrace: GPU %s reports XID %d", uuid, xid)
        attributes = {"hw.id": uuid, "hw.type": "gpu", "error.type": "xid", "tailtrace.xid": xid}
        self._sink([Series("hw.errors", attributes).point(count + 1, now, start)])

    def _uuid_of(self, handle: Any) -> str:
        try:
            return str(self._api.nvmlDeviceGetUUID(handle))
        except self._api.NVMLError:
            return ""

    def _all_absent(self, reason: str) -> None:
        for device in self._devices:
            self._absences.note("hw.errors/xid", reason, device.uuid)
