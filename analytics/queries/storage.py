"""What the store holds, how large it is, and how far back it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.ingest.store import Store


@dataclass(frozen=True, slots=True)
class TableSize:
    """Rows and bytes on disk of the active parts; `oldest` is the first partition by name (a day or month), empty where
    there is only one.
    """

    table: str
    rows: int
    bytes: int
    oldest: str


@dataclass(frozen=True, slots=True)
class Storage:
    """Largest first."""

    tables: list[TableSize]
    total_bytes: int


_PARTS: Final = """
SELECT table, sum(rows) AS n, sum(bytes_on_disk) AS bytes,
  min(if(partition = 'tuple()', '', partition)) AS oldest
FROM system.parts
WHERE active AND database = currentDatabase() GROUP BY table HAVING n > 0 ORDER BY bytes DESC LIMIT 100
"""


def storage(store: Store) -> Storage:
    """Sizes as the engine counts them."""
    tables = [
        TableSize(row["table"], int(row["n"]), int(row["bytes"]), str(row["oldest"]))
        for row in store.query(_PARTS, role="ui")
    ]
    return Storage(tables, sum(one.bytes for one in tables))
