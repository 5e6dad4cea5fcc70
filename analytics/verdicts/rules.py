"""Stage by stage, whose time the excess was: the rules in their order, each part with its evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.demand import Demand, demand
from tailtrace.analytics.verdicts.device import Device, Finding, device, link_share
from tailtrace.analytics.verdicts.excess import Excess
from tailtrace.analytics.verdicts.host import host, hot_thread
from tailtrace.analytics.verdicts.observed import STAGE_INDEX, Observed, Requests, Steps
from tailtrace.analytics.verdicts.queueing import (
    blocked_by_memory,
    demand_findings,
    memory,
    missing_replica,
    queue,
)
from tailtrace.analytics.verdicts.shared_gpu import REASON, strangers
from tailtrace.analytics.verdicts.verdict import UNKNOWN, Evidence, Part
from tailtrace.stages import UNEXPLAINED

Shares = list[tuple[Finding, float]]

DIRECT = {
    "auth": "auth_dependency", "guardrail": "external_dependency", "cache_lookup": "external_dependency",
    "rate_limit": "limiter", "admission": "limiter", "external": "external_dependency", "preempted": "preemption",
    "route": "upstream", "dispatch": "upstream", "network": "upstream",
}  # fmt: skip
CPU = ("parse", "template", "engine_submit", "grammar", "engine_return", "detokenize", "postprocess", "finalize", "app",
       "custom", "mm_encode")  # fmt: skip


class Rules:
    """Everything that is found once for a pair of windows, and the parts of each stage's excess."""

    def __init__(self, before: Observed, during: Observed, own: Requests | None = None) -> None:
        self.before, self.during = before, during
        self.own = own
        self.load: Demand = demand(before, during, own)
        self.slow: Device = device(before, during)
        self._host: Shares | None = None
        self._queue: Shares | None = None

    def parts(self, found: Excess) -> list[Part]:
        """Parts of every stage that grew; those of a stage sum to its excess."""
        out: list[Part] = []
        for stage, index in STAGE_INDEX.items():
            ns = float(found.grown[index])
            if ns > 0:
                out += _split(stage, ns, self._stage(stage, index, found))
        return out

    def startup_parts(self) -> list[Part]:
        """Time in which a replica that should serve was starting, per request of the window."""
        finding = missing_replica(self.before, self.during, self.load)
        if finding is None:
            return []
        ns = sum(
            max(0, min(one.end_ns, self.during.until_ns) - max(one.start_ns, self.during.since_ns))
            for one in self.during.startups
        )
        return _split("engine_init", ns / max(len(self.during.requests), 1), [(finding, 1.0)])

    def _stage(self, stage: str, index: int, found: Excess) -> Shares:
        usual, now = float(found.stage_before[index]), float(found.stage_during[index])
        if stage in DIRECT:
            return _one(DIRECT[stage], 0.9, _stage_ms(stage, usual, now))
        if stage in ("net_in", "stream_out"):
            return self._client(usual, now)
        if stage == "kv_load":
            return self._kv_load(usual, now)
        if stage == "kv_transfer":
            return _one("kv_handover", 0.9, _stage_ms(stage, usual, now))
        if stage == "tokenize":
            return self._tokenize(usual, now)
        if stage == "queue":
            return self._behind_prompts(found) or self._queued()
        if stage == "batch_wait":
            return self._batch_wait(usual, now)
        if stage in ("prefill", "forward"):
            return self._prompt(usual, now)
        if stage == "decode":
            return self._decode(usual, now)
        if stage in CPU:
            return self._cpu()
        if stage == UNEXPLAINED:
            return _unknown("the time lies in no stage: spans are missing there")
        return _unknown(f"there is no rule for {stage}")

    def _cpu(self) -> Shares:
        if self._host is None:
            self._host = host(self.before, self.during)
        return self._host

    def _queued(self) -> Shares:
        if self._queue is None:
            found = self._own_queue() or queue(self.before, self.during, self.load, self.slow)
            self._queue = found if self.own is None else [(self._doubted(one), share) for one, share in found]
        return self._queue

    def _doubted(self, found: Finding) -> Finding:
        """Arrivals come in bursts, so those of the minutes around one request are weak evidence of more demand."""
        return replace(found, strength=min(found.strength, 0.6)) if found.cause in self.load.logs else found

    def _own_queue(self) -> Shares | None:
        """One request is held by the memory that its replica lacked just then, whatever made that scarce."""
        if self.own is None or missing_replica(self.before, self.during, self.load) is not None:
            return None
        blocked = blocked_by_memory(self.before, self.during, self.load)
        if blocked is None:
            return None
        full = memory(self.during.steps).usage >= limit.KV_FULL.value
        # With blocks left it may as well have been one large prompt that was first in line.
        return [(blocked if full else replace(blocked, strength=min(blocked.strength, 0.6)), 1.0)]

    def _behind_prompts(self, found: Excess) -> Shares | None:
        """A few large prompts filled the memory and slowed the decoding of those in it: they leave late, and that is
        what the queue waits for. With room left, or decoding as fast as before, it is the first in line that blocks.
        """
        usual, now = (float(side[STAGE_INDEX["decode"]]) for side in (found.stage_before, found.stage_during))
        held = memory(self.during.steps)
        full = held.blocked >= limit.KV_BLOCKED.value and held.usage >= limit.KV_FULL.value
        if not (self.load.tail and full and usual > 0 and now >= limit.HELD.value * usual):
            return None
        return [
            (
                replace(
                    finding, evidence=(*finding.evidence, _over("decode time / reference", now / usual, limit.HELD))
                ),
                share,
            )
            for finding, share in self._decode(usual, now)
        ]

    def _client(self, usual: float, now: float) -> Shares:
        resent = _ratio(self.during, "tailtrace.host.tcp.retransmits", "tailtrace.host.tcp.segments")
        before = _ratio(self.before, "tailtrace.host.tcp.retransmits", "tailtrace.host.tcp.segments")
        if resent > limit.RETRANSMITS.value and resent > 2 * before:
            return _one("retransmits", 0.9, _over("segments sent again / sent", resent, limit.RETRANSMITS))
        far, near = _median(self.during.requests.client_rtt_ns), _median(self.before.requests.client_rtt_ns)
        if not np.isfinite(far) or not near > 0:
            return _unknown("the client takes its bytes late; its round-trip time is unknown")
        counted = np.isfinite(resent)
        trip = _over("client round trip / reference", far / near, limit.RTT)
        if far / near >= limit.RTT.value:
            return _one("client_link", 0.9 if counted else 0.8, trip)
        if not counted:
            return _unknown("the client takes its bytes late; without TCP counters it may be the line or the reader")
        return _one("slow_reader", 0.85, _stage_ms("stream_out", usual, now), trip)

    def _kv_load(self, usual: float, now: float) -> Shares:
        gpus = tuple(gpu for group in self.during.gpus.values() for gpu in group)
        share, direction = link_share(self.during.counters, gpus, "pcie")
        shared = strangers(self.before, self.during, gpus)
        if share > limit.PCIE.value and shared:
            return [(Finding(UNKNOWN, 0.0, shared, REASON), 1.0)]
        if share > limit.PCIE.value:
            return _one("pcie", 0.92, _over(f"PCIe {direction} bytes / limit", share, limit.PCIE))
        if not self.during.counters.over("tailtrace.link.limit", gpus, "pcie"):
            return _unknown("KV blocks load slowly; there are no counters of PCIe")
        return _one("kv_handover", 0.5, _stage_ms("kv_load", usual, now))

    def _tokenize(self, usual: float, now: float) -> Shares:
        longer = usual * max(0.0, self.load.input_ratio - 1.0)
        rest: Shares
        hot = hot_thread(self.during, "token")
        proof = _stage_ms("tokenize", usual, now)
        if hot is not None:
            rest = _one("tokenizer_thread", 0.92, hot, proof)
        else:
            rest = self._cpu()
            if rest[0][0].cause == UNKNOWN:
                rest = _one("tokenizer_thread", 0.6, proof)
        return _two(longer, now - usual, self._input("longer_input"), rest)

    def _batch_wait(self, usual: float, now: float) -> Shares:
        # The few arrivals around one request say nothing: more of them would fill its batch sooner.
        if self.own is None and self.load.logs["capacity"] > limit.CLEAR_DRIVER.value:
            return _one("capacity", 0.8, *self.load.evidence("capacity"))
        arrivals = Evidence("arrivals / reference", self.load.arrivals, None, "more would fill batches sooner")
        return _one("batch_forming", 0.9, _stage_ms("batch_wait", usual, now), arrivals)

    def _prompt(self, usual: float, now: float) -> Shares:
        a, b = self.load.before, self.load.during
        per_token = usual / a.computed if a.computed > 0 else 0.0
        asked = per_token * b.input * (1.0 - a.cached_share) - usual
        missed = per_token * b.computed - usual - asked
        slower = self.slow.slower.get("prefill", float("nan"))
        held = now * (1.0 - 1.0 / slower) if np.isfinite(slower) and slower >= limit.STEP_SLOWER.value else 0.0
        found = self.slow.shares.get("prefill", [])
        if not np.isfinite(slower) and self.slow.faults:
            found, held = self.slow.faults, max(0.0, now - usual - max(0.0, asked) - max(0.0, missed))
        miss = Finding("cache_miss", 0.9, self.load.evidence("cache_miss"))
        rest = max(0.0, now - usual - max(0.0, asked) - max(0.0, missed) - held)
        return _weighed([
            *(_times(self._input(self._prompts()), max(0.0, asked))),
            (miss, max(0.0, missed)),
            *(_times(found, held)),
            *(_times(self._loaded(), rest)),
        ])  # fmt: skip

    def _decode(self, usual: float, now: float) -> Shares:
        a, b = self.load.before, self.load.during
        more = usual * (b.output / a.output - 1.0) if a.output > 0 and np.isfinite(b.output) else 0.0
        slower = self.slow.slower.get("decode", float("nan"))
        held = now * (1.0 - 1.0 / slower) if np.isfinite(slower) and slower >= limit.STEP_SLOWER.value else 0.0
        found = self.slow.shares.get("decode", [])
        if not np.isfinite(slower) and self.slow.faults:
            found, held = self.slow.faults, max(0.0, now - usual - max(0.0, more))
        stalls = now * max(0.0, prefill_share(self.during.steps) - prefill_share(self.before.steps))
        rest = max(0.0, now - usual - max(0.0, more) - held - stalls)
        longer = Finding(self.load.output_cause, 0.9, self.load.evidence(self.load.output_cause))
        return _weighed([
            (longer, max(0.0, more)),
            *(_times(found, held)),
            *(_times(self._interference(), stalls)),
            *(_times(self._interference() if self.load.tail else self._loaded(), rest)),
        ])  # fmt: skip

    def _interference(self) -> Shares:
        """Decode steps that carry more of others' prompts."""
        if self.load.tail:
            return _one("prefill_interference", 0.85, *self.load.evidence("prefill_interference"))
        loaded = self._loaded()
        if loaded[0][0].cause != UNKNOWN:
            return loaded
        shares = [prefill_share(self.during.steps), prefill_share(self.before.steps)]
        proof = Evidence("share of decode time that others' prompts take", shares[0], shares[1], "the reference")
        return _one("prefill_interference", 0.7, proof)

    def _prompts(self) -> str:
        """A large prompt takes its own time; only what waits behind it is blocked by it."""
        return "longer_input" if self.load.tail else self.load.input_cause

    def _input(self, cause: str) -> Shares:
        return _one(cause, 0.9, *self.load.evidence(cause))

    def _loaded(self) -> Shares:
        """The batch is fuller: what made it so."""
        start = missing_replica(self.before, self.during, self.load)
        if start is not None:
            return [(start, 1.0)]
        shares = self._queued()
        if shares[0][0].cause in ("uneven_replicas", "head_of_line", "kv_full", "preemption"):
            return shares
        drivers = demand_findings(self.load, self.slow)
        total = sum(weight for _, weight in drivers)
        if self.own is not None:
            return _unknown("its batch was fuller or slower; the little that ran beside one request does not say why")
        if total > 0:
            return [(finding, weight / total) for finding, weight in drivers]
        return _unknown("the engine is slower and neither demand nor its GPUs say why")


def prefill_share(steps: Steps) -> float:
    """Of the time in which sequences decode, the share that prompts of others add; 0 where steps say nothing."""
    decoding = steps.where(np.nan_to_num(steps.decode_tokens) > 0)
    pure = np.nan_to_num(decoding.prefill_tokens) == 0
    if pure.sum() < 5 or (~pure).sum() < 1:
        return 0.0
    typical = float(np.median(decoding.duration_ns[pure]))
    beyond = np.maximum(decoding.duration_ns[~pure] - typical, 0.0)
    total = float((decoding.duration_ns * decoding.weight).sum())
    # A kept step with a prompt stands for itself; its weight counts the plain ones before it.
    return float(beyond.sum()) / total if total else 0.0


def _one(cause: str, strength: float, *evidence: Evidence) -> Shares:
    return [(Finding(cause, strength, evidence), 1.0)]


def _unknown(reason: str) -> Shares:
    return [(Finding(UNKNOWN, 0.0, reason=reason), 1.0)]


def _stage_ms(stage: str, usual: float, now: float) -> Evidence:
    return Evidence(f"{stage} ms a request", now / 1e6, usual / 1e6, "the reference")


def _split(stage: str, ns: float, shares: Shares) -> list[Part]:
    return [Part(stage, f.cause, ns * share, f.strength, f.evidence, f.reason) for f, share in shares if share > 0]


def _times(shares: Shares, factor: float) -> Shares:
    return [(finding, share * factor) for finding, share in shares]


def _weighed(weights: Shares) -> Shares:
    total = sum(weight for _, weight in weights)
    if total <= 0:
        return _unknown("the stage grew and none of its inputs did")
    return [(finding, weight / total) for finding, weight in weights if weight > 0]


def _two(first: float, whole: float, shares: Shares, rest: Shares) -> Shares:
    part = min(1.0, max(0.0, first / whole)) if whole > 0 else 0.0
    return [*_times(shares, part), *_times(rest, 1.0 - part)] if part > 0.05 else rest


def _ratio(seen: Observed, part: str, whole: str) -> float:
    ratios = [
        (seen.counters.get(part, one) or 0.0) / top for one in seen.hosts if (top := seen.counters.get(whole, one))
    ]
    return max(ratios) if ratios else float("nan")


def _over(metric: str, value: float, threshold: limit.Threshold) -> Evidence:
    return Evidence(metric, float(value), threshold.value, threshold.source)


def _median(values: Iterable[float]) -> float:
    known = np.asarray([value for value in values if np.isfinite(value)])
    return float(np.median(known)) if len(known) else float("nan")
