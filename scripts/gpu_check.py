"""Runs the sampler on this machine's real GPUs and says what came, what did not and why, and what it cost.

For docs/hardware.md: run it idle and under load, as root and as another user. Exit code 1 where a check failed or no
GPU could be read.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.catalogue import METRICS
from tailtrace.instrumentation.sampler.nvml import Session, Unavailable
from tailtrace.instrumentation.sampler.sampler import Sampler

Key = tuple[str, tuple[tuple[str, str], ...]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    try:
        session = Session()
        devices = session.devices()
    except Unavailable as error:
        print(f"no GPU can be read: {error}")
        return 1
    print(f"date       {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    print(f"driver     {session.driver}")
    print(f"user       {'root' if os.geteuid() == 0 else 'not root'}")
    print(f"container  {Path('/.dockerenv').exists() or Path('/run/.containerenv').exists()}")
    for device in devices:
        print(f"{'instance  ' if device.is_instance else 'GPU       '} {device.name} {device.uuid} {device.bus_id}")
    session.close()

    points: list[Point] = []
    sampler = Sampler(points.extend)
    used, started = time.process_time(), time.monotonic()
    threading.Timer(options.seconds, sampler.stop).start()
    sampler.run()
    share = (time.process_time() - used) / (time.monotonic() - started)

    series: dict[Key, list[Point]] = defaultdict(list)
    for point in points:
        series[point.name, tuple(sorted((k, str(v)) for k, v in point.attributes.items()))].append(point)
    _show(series, {device.uuid: sampler.absences.reasons(device.uuid) for device in devices})
    failed = _check(series)
    print(f"\nCPU        {100 * share:.2f} % of a core; dropped {sampler.drops.counts or 'nothing'}")
    for line in failed:
        print(f"FAILED     {line}")
    return 1 if failed else 0


def _show(series: dict[Key, list[Point]], absent: dict[str, dict[str, str]]) -> None:
    print("\nlast values of the first GPU, and points in all")
    shown = {name for name, _ in series}
    first = next(iter(absent))
    for (name, attributes), values in sorted(series.items()):
        told = dict(attributes)
        if told.get("hw.id", first) == first:
            more = " ".join(f"{k}={v}" for k, v in told.items() if k not in {"hw.id", "hw.type"})
            print(f"  {name:36s} {values[-1].value:<20.6g} {len(values):5d}  {more}")
    print("\nabsent")
    for uuid, reasons in absent.items():
        for metric, reason in sorted(reasons.items()):
            print(f"  {uuid} {metric}: {reason}")
    never = [m.name for m in METRICS if m.room in {"gpu", "link"} and m.name not in shown]
    print("never came: " + (", ".join(never) or "none"))


def _check(series: dict[Key, list[Point]]) -> list[str]:
    """What cannot be right."""
    failed = []
    kinds = {metric.name: metric for metric in METRICS}
    limits = {
        (dict(a)["hw.id"], dict(a)["tailtrace.link"]): values[-1].value
        for (name, a), values in series.items()
        if name == "tailtrace.link.limit"
    }
    for (name, attributes), values in series.items():
        told = dict(attributes)
        stamps = [point.time_unix_ns for point in values]
        if stamps != sorted(stamps):
            failed.append(f"{name} {told}: time runs backwards")
        if kinds[name].kind == "sum" and any(b.value < a.value for a, b in itertools.pairwise(values)):
            failed.append(f"{name} {told}: a sum went down")
        if kinds[name].unit == "1" and name.endswith("_active") and any(not 0 <= p.value <= 1 for p in values):
            failed.append(f"{name} {told}: a share outside 0 to 1")
        limit = limits.get((told.get("hw.id", ""), told.get("tailtrace.link", "")))
        if name == "tailtrace.link.bandwidth" and limit and max(p.value for p in values) > limit:
            failed.append(f"{name} {told}: more than the link's {limit:.3g} bytes a second")
    return failed


if __name__ == "__main__":
    sys.exit(main())
