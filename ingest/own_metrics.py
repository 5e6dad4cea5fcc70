"""Tailtrace's own health as Prometheus text: what came in, what waits, what was lost, how large the store is."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tailtrace.errors import StoreError
from tailtrace.ingest.store.protocol import Store

_PIPELINE: Final = {
    "accepted_items": ("counter", "Items that are on disk."),
    "stored_items": ("counter", "Items that left the journal for the store."),
    "repeated_bodies": ("counter", "Senders' repeats, acknowledged and not stored again."),
    "overloaded_bodies": ("counter", "Bodies answered with 'later'."),
    "refused_bodies": ("counter", "Accepted bodies that the store refused; they are kept in the journal's folder."),
    "insert_failures": ("counter", "Inserts that had to be tried again."),
    "writer_failures": ("counter", "Turns of the journal's thread that failed."),
    "journal_bytes": ("gauge", "Bytes that wait for the store."),
    "journal_bodies": ("gauge", "Bodies that wait for the store."),
    "waiting_segments": ("gauge", "Sealed segments that wait for the store."),
}
_TABLES: Final = """
SELECT table, sum(bytes_on_disk) AS bytes, sum(rows) AS rows, count() AS parts
FROM system.parts WHERE active AND database = currentDatabase() GROUP BY table ORDER BY table
"""
_DROPPED: Final = (
    "SELECT Reason AS reason, sum(Dropped) AS dropped FROM client_losses_total GROUP BY reason ORDER BY reason"
)
_LAG: Final = """
SELECT Job AS job, dateDiff('millisecond', min(upto), now64(3)) / 1000 AS lag
FROM (SELECT Job, Shard, max(ReceivedUpTo) AS upto FROM watermarks WHERE Job NOT LIKE '%.%' GROUP BY Job, Shard)
GROUP BY Job ORDER BY Job
"""


def job_lags(store: Store) -> dict[str, float]:
    """Seconds since the newest receive time up to which all is done, by job. Raises StoreError."""
    return {str(row["job"]): float(row["lag"]) for row in store.query(_LAG, role="ui")}


def exposition(health: Mapping[str, Any], store: Store) -> str:
    """All metrics in the text format 0.0.4. Figures of a store that is away are left out; `tailtrace_store_up` is 0."""
    lines = [
        *_metric("uptime_seconds", "gauge", "Since the process started.", [({}, health["uptime_s"])]),
        *_receiver(health.get("receiver", {})),
    ]
    for name, (kind, text) in _PIPELINE.items():
        if name in health.get("pipeline", {}):
            lines += _metric(f"pipeline_{name}", kind, text, [({}, health["pipeline"][name])])
    for name, rate in health.get("rates", {}).items():
        text = "Over about the last minute."
        lines += _metric(f"pipeline_{name}_per_second", "gauge", text, [({}, rate)])
    if "disk_free_bytes" in health:
        text = "Free on the disk of the data directory."
        lines += _metric("disk_free_bytes", "gauge", text, [({}, health["disk_free_bytes"])])
    try:
        tables = store.query(_TABLES, role="ui")
        dropped = store.query(_DROPPED, role="ui")
        lags = job_lags(store)
    except StoreError:
        return _text([*lines, *_metric("store_up", "gauge", "Whether the store answers.", [({}, 0)])])
    lines += _metric("store_up", "gauge", "Whether the store answers.", [({}, 1)])
    for name, text in (("bytes", "On disk."), ("rows", "Stored, before merges."), ("parts", "Active parts.")):
        lines += _metric(f"table_{name}", "gauge", text, [({"table": row["table"]}, row[name]) for row in tables])
    lines += _metric(
        "job_lag_seconds", "gauge", "Age of the newest receive time up to which all is done.",
        [({"job": job}, lag) for job, lag in lags.items()],
    )  # fmt: skip
    lines += _metric(
        "client_dropped_items", "counter", "What clients said that they had to drop.",
        [({"reason": row["reason"]}, row["dropped"]) for row in dropped],
    )  # fmt: skip
    return _text(lines)


def _receiver(signals: Mapping[str, Any]) -> Iterable[str]:
    """received = accepted + deferred + rejected, for each signal."""
    for name, text in (
        ("received", "Items of bodies that could be read."),
        ("accepted", "Of those, on disk."),
        ("deferred", "Of those, to be sent again."),
    ):
        yield from _metric(
            f"receiver_{name}_items", "counter", text, [({"signal": s}, c[name]) for s, c in signals.items()]
        )
    for name, label, text in (
        ("rejected", "reason", "Items rejected, by reason."),
        ("mended", "kind", "Parts of accepted items that were changed."),
        ("refused", "code", "Requests refused whole, by status."),
    ):
        rows = [({"signal": s, label: key}, n) for s, c in signals.items() for key, n in sorted(c[name].items())]
        yield from _metric(f"receiver_{name}", "counter", text, rows)


def _metric(name: str, kind: str, text: str, rows: Iterable[tuple[Mapping[str, Any], Any]]) -> list[str]:
    full = f"tailtrace_{name}" + ("_total" if kind == "counter" else "")
    lines = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
    for labels, value in rows:
        inner = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
        lines.append(f"{full}{{{inner}}} {value}" if inner else f"{full} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
