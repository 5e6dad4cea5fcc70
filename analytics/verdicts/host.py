"""Which of the host's faults held a CPU stage back: quota, starvation, interpreter lock, or the event loop itself."""

from __future__ import annotations

from typing import Final

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.device import Finding
from tailtrace.analytics.verdicts.observed import Counters, Observed
from tailtrace.analytics.verdicts.thresholds import Threshold
from tailtrace.analytics.verdicts.verdict import UNKNOWN, Evidence

LOOP_CAUSES: Final = ("loop_blocked", "loop_cpu", "cpu_starved", "gil")
NO_COUNTERS: Final = "no counters of the host: a busy thread, a blocked loop and a starved one look alike"
QUIET: Final = "the host's counters are quiet"


def host(before: Observed, during: Observed) -> list[tuple[Finding, float]]:
    """Findings with their shares, summing to 1, of the time by which a CPU stage grew."""
    now, usual, hosts = during.counters, before.counters, during.hosts
    found: list[tuple[Finding, float]] = []
    throttled = "tailtrace.host.cgroup.throttled"
    groups = {group for one in hosts for group in now.attributes(throttled, one)}
    quota = max((grown(usual, now, throttled, hosts, group) for group in groups), default=0.0)
    if quota > limit.QUOTA.value:
        found.append((_finding("cpu_quota", "time out of CPU quota", quota, limit.QUOTA), quota))
    lost = {cause: grown(usual, now, "tailtrace.host.loop.lost", hosts, cause) for cause in LOOP_CAUSES}
    for cause, share in lost.items():
        if share > limit.LOOP_LOST.value:
            found.append((_finding(cause, f"time the event loop lost to {cause}", share, limit.LOOP_LOST), share))
    waiting = grown(usual, now, "tailtrace.host.process.run_queue", hosts)
    if not found and waiting > limit.RUN_QUEUE.value:
        # Without the probe in the service the scheduler's own count is the proof.
        found.append(
            (_finding("cpu_starved", "threads runnable without a CPU", waiting, limit.RUN_QUEUE, 0.8), waiting)
        )
    total = sum(share for _, share in found)
    if total > 0:
        return [(finding, share / total) for finding, share in found]
    seen = bool(now.over("tailtrace.host.loop.lag", hosts, "p99")) or any(
        now.attributes("tailtrace.host.loop.lost", one) for one in hosts
    )
    return [(Finding(UNKNOWN, 0.0, reason=QUIET if seen else NO_COUNTERS), 1.0)]


def hot_thread(during: Observed, name: str) -> Evidence | None:
    """A thread whose name holds `name` and that has a whole CPU to itself."""
    hottest = 0.0
    for one in during.hosts:
        threads = during.counters.attributes("tailtrace.host.thread.cpu", one)
        hottest = max([hottest, *(share for thread, share in threads.items() if name in thread.lower())])
    if hottest < limit.HOT_THREAD.value:
        return None
    return Evidence(f"CPU of one {name} thread", hottest, limit.HOT_THREAD.value, limit.HOT_THREAD.source)


def grown(usual: Counters, now: Counters, metric: str, hosts: tuple[str, ...], attribute: str = "") -> float:
    """The largest rise of a share over the reference on any host; its own value where there is no reference."""
    rises = [0.0]
    for one in hosts:
        value = now.get(metric, one, attribute)
        if value is not None:
            rises.append(value - (usual.get(metric, one, attribute) or 0.0))
    return max(rises)


def _finding(cause: str, metric: str, value: float, threshold: Threshold, strength: float = 0.92) -> Finding:
    return Finding(cause, strength, (Evidence(metric, float(value), threshold.value, threshold.source),))
