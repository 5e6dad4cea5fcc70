"""What the doors rejected, added up by minute in the table `losses`, so that pages of any process can say it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from tailtrace.errors import StoreError
from tailtrace.ingest.store.protocol import Store

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
_SCHEMA: Final = pa.schema(
    [("Time", pa.timestamp("s", "UTC")), ("Service", pa.string()), ("Signal", pa.string()), ("Kind", pa.string()),
     ("Reason", pa.string()), ("Count", pa.uint64())]
)  # fmt: skip


class RejectionLog:
    """Writes by how much the counts of rejected items grew. A store that is away gets them when it is back."""

    def __init__(
        self, store: Store, snapshot: Callable[[], Mapping[str, Any]], clock: Callable[[], float] = time.time
    ) -> None:
        """`snapshot` gives, by signal, `rejected` items by reason since the start."""
        self._store = store
        self._snapshot = snapshot
        self._clock = clock
        self._written: dict[tuple[str, str], int] = {}
        self._unsure: tuple[str, pa.Table] | None = None  # sent, and not known to be stored: sent again as it was
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="losses", daemon=True)

    def start(self) -> Callable[[], None]:
        """Write every ten seconds; gives what ends it."""
        self._thread.start()
        return self.stop

    def stop(self, timeout_s: float = 2.0) -> None:
        """Write the rest, if the store takes it in time."""
        self._stop.set()
        self._thread.join(timeout_s)

    def write(self) -> None:
        """Write what is new. Raises StoreError; the next call writes the same again."""
        if self._unsure is None:
            self._unsure = self._grown()
        if self._unsure is not None:
            token, rows = self._unsure
            self._store.insert_arrow("losses", rows, token=token, role="insert")
            self._unsure = None

    def _grown(self) -> tuple[str, pa.Table] | None:
        now = {
            (signal, reason): n
            for signal, counts in self._snapshot().items()
            for reason, n in counts["rejected"].items()
        }
        new = [(*key, n - self._written.get(key, 0)) for key, n in sorted(now.items()) if n > self._written.get(key, 0)]
        if not new:
            return None
        self._written = now
        minute = int(self._clock()) // 60 * 60
        signals, reasons, counts = zip(*new, strict=True)
        columns = [[minute] * len(new), [""] * len(new), signals, ["rejected"] * len(new), reasons, counts]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        return f"losses/{uuid.uuid4()}", pa.Table.from_arrays(arrays, schema=_SCHEMA)

    def _run(self) -> None:
        while True:
            stopping = self._stop.wait(EVERY_S)
            try:
                self.write()
            except StoreError as error:
                log.warning("what was rejected cannot be written now, it is tried again: %s", error)
            if stopping:
                return
