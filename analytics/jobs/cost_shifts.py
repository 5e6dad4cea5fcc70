"""Cost shifts of a series, once an hour: listed with the changes, never sent."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import orjson

from tailtrace.analytics.detection.cost_shift import Shift, is_shift, shifts
from tailtrace.analytics.detection.counts import INTERVAL_S, PER_DAY, PER_HOUR
from tailtrace.analytics.detection.stages import StageCells, growth
from tailtrace.analytics.jobs.change_rows import ChangeRow, Key
from tailtrace.analytics.jobs.series import STAGES, stage_cells
from tailtrace.ingest.store import Store

log = logging.getLogger(__name__)

STATE: Final = "cost_shift"
HOURS: Final = 2
ACCEPTED_S: Final = 3 * 86_400


def cost_shifts(store: Store, key: Key, until: int, rows: Sequence[ChangeRow]) -> list[ChangeRow]:
    """Rows that are new or over as of interval `until`. `rows` are all of the series, this round's included.

    While a change of the request is open or suspected, what its stages do is that change's to tell.
    """
    told = [row for row in rows if row.state in ("suspected", "confirmed") and row.until is None]
    going = [row for row in rows if row.state == STATE and row.until is None]
    written = [replace(row, until=until * INTERVAL_S) for row in going if _is_over(store, row, until, told)]
    if told:
        return written
    last = until - HOURS * PER_HOUR
    before, after = stage_cells(store, key, (last - PER_DAY, last), (last, until))
    hours = [_between(after, last + hour * PER_HOUR, last + (hour + 1) * PER_HOUR) for hour in range(HOURS)]
    known = {row.stage for row in going}
    for shift in shifts(STAGES, before, hours):
        if shift.stage.stage not in known:
            row = _row(key, shift, last, until)
            written.append(row)
            log.info(
                "cost shift: %s of %s grew from %.3g to %.3g ms while its requests did not", row.stage, row.service,
                shift.stage.before_ns / 1e6, shift.stage.after_ns / 1e6,
            )  # fmt: skip
    return written


def _is_over(store: Store, row: ChangeRow, until: int, told: Sequence[ChangeRow]) -> bool:
    """It became a change of the request, or what is usual, or the stage is as it was before."""
    if any(each.stage == row.stage for each in told) or until * INTERVAL_S - row.onset >= ACCEPTED_S:
        return True
    onset = row.onset // INTERVAL_S
    before, after = stage_cells(store, row.series, (onset - PER_DAY, onset), (until - PER_HOUR, until))
    grown = growth(STAGES, before, after)
    whole = sum(each.before_ns for each in grown)
    return bool(grown) and not any(each.stage == row.stage and is_shift(each, whole) for each in grown)


def _between(cells: StageCells, begin: int, end: int) -> StageCells:
    use = (cells.interval >= begin) & (cells.interval < end)
    return StageCells(cells.interval[use], cells.kind[use], cells.n[use], cells.sums[use])


def _row(key: Key, shift: Shift, onset: int, until: int) -> ChangeRow:
    text = "\x1f".join((*key, STATE, shift.stage.stage, str(onset)))
    body: dict[str, Any] = {
        "growth": [asdict(shift.stage)],
        "request": {"before_ns": shift.request_before_ns, "after_ns": shift.request_after_ns},
    }
    return ChangeRow(
        hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), *key, onset * INTERVAL_S, until * INTERVAL_S, None,
        None, STATE, "stage", shift.stage.z, shift.stage.stage, shift.stage.share,
        body=orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY).decode(),
    )  # fmt: skip
