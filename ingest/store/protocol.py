"""What every store can do. Two exist: the embedded engine and a ClickHouse server over HTTP."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

Role = Literal["insert", "jobs", "ui"]
Signal = Literal["traces", "metrics", "logs"]
Parameters = Mapping[str, Any] | None
Settings = Mapping[str, Any] | None


class Store(Protocol):
    """A ClickHouse database that holds the schema of this release.

    Parameters are server-side ones, `{name:Type}` in the statement. A role keeps insert, jobs and readers from waiting
    for each other. Every method raises StoreError, with the engine's message, when the statement fails, and StoreDead
    after close or fork.
    """

    def query_arrow(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> pa.Table:
        """The result as one Arrow table: strings as utf8, DateTime64 as timestamps in UTC."""
        ...

    def query(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> list[dict[str, Any]]:
        """The result as Python rows: datetimes are aware and in UTC (microseconds), maps are dicts."""
        ...

    def insert_arrow(self, table: str, data: pa.Table, *, token: str | None = None, role: Role = "jobs") -> None:
        """Insert by column name. A token used before for this table inserts nothing, here and in dependent views."""
        ...

    def insert_segment(self, signal: Signal, path: Path, token: str) -> None:
        """Insert a file of length-delimited OTLP bodies, decoded by the engine; the token makes a retry harmless."""
        ...

    def command(self, sql: str, parameters: Parameters = None, *, role: Role = "jobs") -> None:
        """Run a statement that returns nothing."""
        ...

    def cancel(self, query_id: str) -> None:
        """Stop running statements that hold the comment `/* id:<query_id> */`."""
        ...

    def close(self) -> None:
        """Let go of the engine; later calls raise StoreDead."""
        ...
