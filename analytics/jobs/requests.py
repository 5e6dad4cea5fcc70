"""The `requests` job: judges settled traces and writes their rows, in rounds that leave no trace of being run twice."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailtrace.analytics.jobs import inbox, inserts, progress
from tailtrace.analytics.jobs.memory import ArrivalCounts, SeenTraces
from tailtrace.analytics.jobs.progress import SHARDS, Claim, Progress
from tailtrace.analytics.jobs.rewrite import NO_ROWS, rewritten, stored_rows
from tailtrace.analytics.jobs.rollup_feed import rollup_feed
from tailtrace.analytics.jobs.settling import Arrived, Decision, decide
from tailtrace.analytics.jobs.visible import Visible
from tailtrace.analytics.judge import columns
from tailtrace.analytics.judge.batch import from_inbox
from tailtrace.analytics.judge.grouping import Grouping, group_rows
from tailtrace.analytics.judge.judge import JudgedBatch, judge_batch
from tailtrace.analytics.trace import MAX_SPANS
from tailtrace.ingest.store import Store

ROUND_SPANS: Final = 240_000
IDLE_MS: Final = 5_000
_NOW: Final = "SELECT toUnixTimestamp64Milli(now64(3)) AS now"
# Clocks of hosts differ; a trace that began this much later than all that is remembered is surely new.
_CLOCK_SLACK_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class JobReport:
    """What one call did. `behind`: more is waiting that could be judged now."""

    spans: int = 0
    traces: int = 0
    rows: int = 0
    reopened: int = 0
    behind: bool = False

    def plus(self, other: JobReport) -> JobReport:
        return JobReport(
            self.spans + other.spans,
            self.traces + other.traces,
            self.rows + other.rows,
            self.reopened + other.reopened,
            self.behind or other.behind,
        )


def run_requests(store: Store, *, now_ms: int | None = None, lane: int = 0, lanes: int = 1) -> JobReport:
    """One round over the shards of a lane (those equal to `lane` modulo `lanes`).

    `now_ms` is the store's clock unless given. Lanes let several workers share the work; all must count them alike.
    """
    with _LOCK:
        worker = _WORKERS.setdefault(store, {}).setdefault((lane, lanes), _Worker(lane, lanes))
    with worker.lock:
        return worker.run(store, now_ms)


def warm_up() -> None:
    """Compile the kernels of a round, or load them from their cache."""
    one = np.ones(1, np.int64)
    decide(Arrived(one - 1, 1, one, one, one > 0), 0, 0, 0, one - 1)
    row = {"Kind": "request", "End": datetime.now(UTC), "DurationNs": 1, "SampleWeight": 1, "Sign": 1}
    rollup_feed(pa.Table.from_pylist([row]))


class _Worker:
    """The rounds of one lane, and what makes the next one cheap."""

    def __init__(self, lane: int, lanes: int) -> None:
        self.lock = threading.Lock()
        self._shards = [shard for shard in range(SHARDS) if shard % lanes == lane]
        self._resources = inbox.ResourceCache()
        self._arrivals = ArrivalCounts()
        self._visible = Visible()
        self._waiting: dict[str, inbox.WaitingBlocks] = {}
        self._left: dict[str, Progress] = {}
        self._open: dict[str, tuple[Progress, pa.Table | None]] = {}
        self._seen: dict[str, SeenTraces] = {}

    def run(self, store: Store, now_ms: int | None) -> JobReport:
        report = JobReport()
        now = int(store.query(_NOW, role="jobs")[0]["now"]) if now_ms is None else now_ms
        for state, shards in progress.load(store, self._shards):
            report = report.plus(self._round(store, state, shards, now))
        return report

    def _round(self, store: Store, state: Progress, shards: list[int], now_ms: int) -> JobReport:
        name = progress.group_name(shards)
        if self._left.get(name) != state:
            self._seen[name] = SeenTraces(state.upto_ms)
        claim = progress.pending_claim(store, shards, state)
        behind = False
        if claim is None:
            wanted, behind = self._plan(store, state, shards, now_ms)
            if wanted is None:
                self._left[name] = state
                return JobReport()
            claim = progress.claim(store, shards, state, wanted)
        table = self._spans(store, state, shards, claim.to)
        grouping = group_rows(table["TraceId"].combine_chunks()) if table.num_rows else _NOTHING
        arrived = _arrived(table, grouping)
        traces = _names(grouping.ids)
        judged_block = _judged_blocks(traces, state)
        decision = decide(arrived, state.cursor, state.now_ms, claim.now_ms, judged_block)
        written, reopened = NO_ROWS, 0
        if decision.judge.any():
            written, reopened = self._judge(store, name, state, claim, table, grouping, traces, decision.judge)
        after = _after(state, claim, arrived, traces, decision)
        left = inbox.after_block(table, after.low)
        report = JobReport(table.num_rows, int(decision.judge.sum()), written.num_rows, reopened, behind)
        # The insert takes memory of its own.
        del table, grouping, arrived
        inserts.write(store, written, claim, name)
        progress.advance(store, shards, after)
        self._seen[name].add(traces[decision.judge], claim.now_ms)
        self._left[name] = after
        self._open[name] = after, left
        return report

    def _spans(self, store: Store, state: Progress, shards: list[int], to: int) -> pa.Table:
        """The spans of blocks in (low, to]. Those up to the cursor lay open when the round before ended: if that was
        ours, they are still in hand."""
        left, known = self._open.pop(progress.group_name(shards), (None, None))
        if known is None or left != state:
            return inbox.read_inbox(store, shards, state.since_ms, state.low, to)
        new = inbox.read_inbox(store, shards, state.since_ms, state.cursor, to)
        return pa.concat_tables([table for table in (known, new) if table.num_rows] or [new])

    def _plan(self, store: Store, state: Progress, shards: Sequence[int], now_ms: int) -> tuple[Claim | None, bool]:
        """The next round, if there is anything to do; and whether it leaves blocks for a further one."""
        last = self._visible.up_to(store, state.since_ms)
        waiting = self._waiting.setdefault(progress.group_name(shards), inbox.WaitingBlocks())
        blocks = waiting.take(store, shards, state.since_ms, state.cursor, last, ROUND_SPANS)
        if blocks is None:
            idle = state.low == state.cursor
            if idle and (state.cursor == 0 or now_ms - state.upto_ms < IDLE_MS + 1_000):
                return None, False
            return Claim(state.round + 1, state.cursor, max(now_ms, state.now_ms), apart=True), False
        # What was left out may belong to traces of this round: time stands still at its arrival.
        as_of = now_ms if blocks.next_ms is None else min(now_ms, blocks.next_ms)
        claim = Claim(state.round + 1, blocks.to, max(as_of, state.now_ms), apart=True)
        return claim, blocks.next_ms is not None

    def _judge(
        self,
        store: Store,
        name: str,
        state: Progress,
        claim: Claim,
        table: pa.Table,
        grouping: Grouping,
        traces: Any,
        judge: Any,
    ) -> tuple[pa.Table, int]:
        """What the round writes of the traces to judge, and how many of them had rows before."""
        maybe = np.zeros(len(traces), np.bool_)
        if state.round:
            seen = self._seen[name]
            starts = table["StartNs"].combine_chunks().to_numpy()[grouping.order]
            first_start = np.minimum.reduceat(starts, grouping.offsets[:-1])
            early = first_start < (seen.since_ms + _CLOCK_SLACK_MS) * 1_000_000
            maybe = judge & (seen.contains(traces) | early)
        hexes = columns.hex_text(grouping.ids[maybe]).to_pylist()
        old = stored_rows(store, hexes, claim.round)
        stored = set(old["TraceId"].to_pylist()) if old.num_rows else set()
        reread = [text for text in hexes if text in stored]
        fresh = judge.copy()
        fresh[np.flatnonzero(maybe)[np.array([text in stored for text in hexes], np.bool_)]] = False
        grouping = grouping.only(fresh)
        judged = self._judged(store, table, grouping) if len(grouping.order) else []
        for start in range(0, len(reread), inbox.MAX_TRACES_A_READ):
            judged += self._reread(store, reread[start : start + inbox.MAX_TRACES_A_READ])
        new = pa.concat_tables(judged, promote_options="permissive") if judged else NO_ROWS
        return rewritten(old, new, claim.round), len(reread)

    def _judged(self, store: Store, table: pa.Table, grouping: Grouping) -> list[pa.Table]:
        """Rows of whole traces from the inbox; a trace is read in full where it lacks attributes of an entry span or
        of an engine's request."""
        result, rows = self._rows(store, table, grouping)
        batch = result.batch
        lacking = np.union1d(
            result.entries[~batch.has_attributes[result.entries]],
            result.calls.at[~batch.has_attributes[result.calls.at]],
        )
        if not len(lacking):
            return [rows]
        trace = np.searchsorted(batch.offsets, result.entries, side="right") - 1
        poor = np.unique(np.searchsorted(batch.offsets, lacking, side="right") - 1)
        keep = ~np.isin(trace, poor)
        hexes = columns.hex_text(batch.traces[poor]).to_pylist()
        out = [rows.filter(pa.array(keep))]
        for start in range(0, len(hexes), inbox.MAX_TRACES_A_READ):
            out += self._reread(store, hexes[start : start + inbox.MAX_TRACES_A_READ])
        return out

    def _reread(self, store: Store, traces: list[str]) -> list[pa.Table]:
        bounds = inbox.trace_bounds(store, traces)
        if bounds is None:
            return []
        table = inbox.read_traces(store, traces, bounds, MAX_SPANS)
        return [self._rows(store, table, group_rows(table["TraceId"].combine_chunks()))[1]] if table.num_rows else []

    def _rows(self, store: Store, table: pa.Table, grouping: Grouping) -> tuple[JudgedBatch, pa.Table]:
        batch = from_inbox(table, grouping)
        resources = self._resources.get(store, batch.resources)
        result = judge_batch(batch, resources, self._arrivals.per_minute, as_stored=True)
        received = table["ReceivedMs"].combine_chunks().to_numpy()[batch.row]
        last = np.maximum.reduceat(received, batch.offsets[:-1])
        trace = np.searchsorted(batch.offsets, result.entries, side="right") - 1
        stamp = pa.array(last[trace], pa.int64()).cast(pa.timestamp("ms", "UTC"))
        return result, result.rows.append_column("ReceivedAt", stamp)


_LOCK = threading.Lock()
_WORKERS: weakref.WeakKeyDictionary[Store, dict[tuple[int, int], _Worker]] = weakref.WeakKeyDictionary()


_NOTHING: Final = Grouping(
    np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros((0, 16), np.uint8)
)


def _arrived(table: pa.Table, grouping: Grouping) -> Arrived:
    if table.num_rows == 0:
        none = np.zeros(0, np.int64)
        return Arrived(none, 0, none, none, np.zeros(0, np.bool_))
    return Arrived(
        trace=grouping.trace,
        traces=len(grouping.ids),
        received_ms=table["ReceivedMs"].combine_chunks().to_numpy().copy(),
        block=table["Block"].combine_chunks().to_numpy().copy(),
        is_root=table["ParentSpanId"].combine_chunks().to_numpy() == 0,
    )


def _names(ids: Any) -> Any:
    """A 64-bit name of each trace: the two halves of its id folded together."""
    halves = ids.view(">u8").astype(np.uint64)
    return halves[:, 1] ^ (halves[:, 0] * np.uint64(0x9E3779B97F4A7C15))


def _judged_blocks(traces: Any, state: Progress) -> Any:
    blocks = np.zeros(len(traces), np.int64)
    if state.forced:
        order = np.argsort(traces)
        ordered = traces[order]
        for name, block in state.forced.items():
            at = int(np.searchsorted(ordered, np.uint64(int(name, 16))))
            if at < len(traces) and int(ordered[at]) == int(name, 16):
                blocks[order[at]] = block
    return blocks


def _after(state: Progress, claim: Claim, arrived: Arrived, traces: Any, decision: Decision) -> Progress:
    """The state that the round leaves: judged are all blocks before the first that an open trace needs."""
    waiting = bool(decision.open.any())
    low = min(int(decision.open_block.min()) - 1, claim.to) if waiting else claim.to
    oldest = int(decision.open_ms.min()) if waiting else claim.now_ms
    upto = max(state.upto_ms, min(oldest - 1, claim.now_ms - 1_000))
    forced = {}
    if state.forced:
        finished = {f"{int(t):x}" for t in traces[decision.judge & ~decision.grows]}
        forced = {name: block for name, block in state.forced.items() if name not in finished and block > low}
    forced.update({f"{int(t):x}": claim.to for t in traces[decision.grows]})
    since = max(state.since_ms, oldest - inbox.IN_FLIGHT_MS)
    return Progress(claim.round, low, claim.to, claim.now_ms, since, upto, forced)
