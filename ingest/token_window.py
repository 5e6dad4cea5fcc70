"""Whether the engine still knows the tokens of segments that an earlier start, or a restored copy, left behind.

It remembers the last 100,000 inserts of a table. A segment whose token it has forgotten would be stored a second time,
so its spans are looked for first. What tells is the engine's own count of inserts, noted beside the journal while
segments are stored: since the note every segment that is left was tried later than it was written.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tailtrace.errors import StoreError
from tailtrace.ingest.store.protocol import Store

log = logging.getLogger(__name__)

WINDOW: Final = 90_000
"""Inserts that are surely remembered: the tables' window, less what other receivers insert at this moment."""
NOTE_S: Final = 60.0
_NAME: Final = "inserts"
_INSERTS: Final = """
SELECT max(max_block_number) AS n FROM system.parts
WHERE active AND database = currentDatabase() AND table = 'otel_traces'
"""


class TokenWindow:
    """The window of one signal's journal. For one thread."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._noted_at = float("-inf")
        self._holds: bool | None = None

    def note(self, folder: Path) -> None:
        """A segment of this start is stored, so all earlier ones are: at most once a minute that is written down."""
        now = self._clock()
        if now - self._noted_at < NOTE_S:
            return
        self._noted_at = now
        try:
            inserts = self._inserts()
            if inserts is not None:
                fresh = folder / f"{_NAME}.new"
                fresh.write_text(str(inserts))
                fresh.replace(folder / _NAME)
        except (StoreError, OSError) as error:  # an older note only makes the next start ask
            log.info("the count of inserts cannot be noted: %s", error)

    def holds(self, folder: Path) -> bool:
        """Whether every token of a segment in `folder` that came before this start is remembered."""
        if self._holds is None:
            inserts = self._inserts() or 0
            try:
                since = int((folder / _NAME).read_text())
            except (FileNotFoundError, ValueError):
                since = 0
            self._holds = 0 <= inserts - since < WINDOW  # fewer than noted: the tables were made anew from a copy
        return self._holds

    def _inserts(self) -> int | None:
        rows = self._store.query(_INSERTS, role="insert")
        return int(rows[0]["n"]) if rows else None
