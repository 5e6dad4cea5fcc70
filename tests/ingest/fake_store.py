"""A store that keeps segments in memory, refuses what it is told to refuse, and can be away."""

import threading
from pathlib import Path

from tailtrace.errors import StoreError
from tailtrace.ingest.framing import read_bodies


class FakeStore:
    """Only what an inserter needs of a store. Like the real one it ignores a token that it has seen."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.tokens: list[str] = []
        self.refuse: set[bytes] = set()
        self.error: str | None = None
        self.tried = threading.Event()

    def insert_segment(self, signal: str, path: Path, token: str) -> None:
        bodies = list(read_bodies(path))
        self.tried.set()
        if self.error is not None:
            raise StoreError(self.error)
        if self.refuse.intersection(bodies):
            raise StoreError("Code: 117. DB::Exception: bad data. (INCORRECT_DATA)")
        if token not in self.tokens:
            self.tokens.append(token)
            self.bodies += bodies

    def query(self, sql: str, parameters: object = None, **_: object) -> list[dict[str, str]]:
        """Nothing is found: a refused segment left nothing behind."""
        return []
