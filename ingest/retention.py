"""Keeps the store within its budget: the oldest telemetry is dropped, whole partitions and, of the newest day, parts.

Spans, metrics and logs share a budget in bytes and, where set, an age; requests and rollups outlive them and have an
age of their own. Nothing is deleted row by row, so freeing space needs next to none, and that is kept (see `ballast`).
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from tailtrace.errors import StoreError
from tailtrace.ingest.ballast import Ballast
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store.protocol import Store
from tailtrace.ingest.store.statements import identifier

log = logging.getLogger(__name__)

TELEMETRY: Final = (
    *("otel_traces", "otel_logs", "engine_steps", "otel_metrics_gauge", "otel_metrics_sum"),
    *("otel_metrics_histogram", "otel_metrics_exp_histogram", "otel_metrics_summary"),
)
"""Partitioned by day; counted together with the side table of trace times, which is partitioned by week."""
BOUNDS: Final = "otel_traces_trace_id_ts"
DERIVED: Final = ("requests", "rollup_1m", "rollup_1h", "rollup_1d", "strata_5m", "strata_1d", "client_losses")
"""Partitioned by day or month."""

_PARTS: Final = """
SELECT table, partition_id AS partition, name, bytes_on_disk AS bytes, min_block_number AS first
FROM system.parts
WHERE active AND database = currentDatabase() AND table IN {tables:Array(String)}
ORDER BY partition, first
"""


@dataclass(frozen=True, slots=True)
class Part:
    """One active part, as `system.parts` shows it."""

    table: str
    partition: str
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What is there, read back from the tables; `oldest` is the first day of spans, metrics or logs."""

    telemetry_bytes: int
    derived_bytes: int
    budget_bytes: int
    oldest: str | None
    dropped: int = 0


def kept(store: Store, settings: ServerSettings, dropped: int = 0) -> Kept:
    """The present state."""
    telemetry, derived = _parts(store, (*TELEMETRY, BOUNDS)), _parts(store, DERIVED)
    days = [part.partition for part in telemetry if part.table != BOUNDS]
    return Kept(
        sum(part.bytes for part in telemetry),
        sum(part.bytes for part in derived),
        settings.storage_budget_bytes,
        f"{_day(min(days)):%Y-%m-%d}" if days else None,
        dropped,
    )


def enforce(store: Store, settings: ServerSettings, now: datetime | None = None) -> Kept:
    """Drops what is too old or too much; gives what is left. What cannot be dropped now is tried at the next call."""
    today = (now or datetime.now(UTC)).date()
    room = None if settings.clickhouse_url else Ballast(settings.data)
    dropped = 0
    parts = _parts(store, TELEMETRY)
    if settings.retention_days:
        first = today - timedelta(days=settings.retention_days)
        dropped += _drop(store, [part for part in parts if _day(part.partition) < first], parts, room)
    if settings.derived_retention_days:
        first = today - timedelta(days=settings.derived_retention_days)
        derived = _parts(store, DERIVED)
        dropped += _drop(store, [part for part in derived if _last_day(part.partition) < first], derived, room)
    parts = _parts(store, TELEMETRY)
    bounds = _parts(store, (BOUNDS,))
    excess = sum(part.bytes for part in (*parts, *bounds)) - settings.storage_budget_bytes
    dropped += _drop(store, list(_oldest(parts, excess)), parts, room)
    dropped += _drop_bounds(store, room)
    if room is not None:
        room.keep()
    return kept(store, settings, dropped)


def _oldest(parts: Sequence[Part], excess: int) -> Iterator[Part]:
    """The oldest parts whose sizes make up for the excess: whole days, but of the newest day only what is needed."""
    newest = max((part.partition for part in parts), default="")
    day = ""
    for part in parts:
        if excess <= 0 and (part.partition == newest or part.partition != day):
            return
        day = part.partition
        excess -= part.bytes
        yield part


def _drop_bounds(store: Store, room: Ballast | None) -> int:
    """Weeks of the side table that end before the first day of spans."""
    spans = _parts(store, ("otel_traces",))
    if not spans:
        return 0
    first = min(_day(part.partition) for part in spans)
    weeks = _parts(store, (BOUNDS,))
    return _drop(store, [part for part in weeks if _day(part.partition) + timedelta(days=7) <= first], weeks, room)


def _drop(store: Store, doomed: Sequence[Part], present: Sequence[Part], room: Ballast | None) -> int:
    """Drops parts, as whole partitions where all of one goes."""
    names = {part.name for part in doomed}
    whole = {(part.table, part.partition) for part in doomed}
    whole -= {(part.table, part.partition) for part in present if part not in doomed and part.name not in names}
    statements = [f"ALTER TABLE {identifier(table)} DROP PARTITION ID '{part}'" for table, part in sorted(whole)]
    statements += [
        f"ALTER TABLE {identifier(part.table)} DROP PART '{part.name}'"
        for part in doomed
        if (part.table, part.partition) not in whole
    ]
    dropped = 0
    for statement in statements:
        try:
            _command(store, statement, room)
            dropped += 1
        except StoreError as error:  # merged meanwhile: the next call sees the new part
            log.info("%s: %s", statement, error)
    if dropped:
        log.info("dropped the oldest data: %s", "; ".join(statements[:10]))
    return dropped


def _command(store: Store, statement: str, room: Ballast | None) -> None:
    try:
        store.command(statement)
    except StoreError as error:
        if "NOT_ENOUGH_SPACE" not in str(error) or room is None or not room.release():
            raise
        log.warning("the disk is full: what was kept for that is used to drop the oldest data")
        store.command(statement)


def _parts(store: Store, tables: Sequence[str]) -> list[Part]:
    rows = store.query(_PARTS, {"tables": list(tables)}, role="jobs")
    return [
        Part(str(row["table"]), str(row["partition"]), str(row["name"]), int(row["bytes"]))
        for row in rows
        if str(row["partition"]).isalnum()
    ]


def _day(partition: str) -> date:
    """The first day of a partition by day (or week), YYYYMMDD, or by month, YYYYMM."""
    return datetime.strptime(f"{partition}01"[:8], "%Y%m%d").date()


def _last_day(partition: str) -> date:
    return _day(partition) if len(partition) == 8 else _day(partition) + timedelta(days=31)
