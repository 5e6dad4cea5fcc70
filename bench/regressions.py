"""Regressions in made weeks: how often a fleet cries wolf, how soon a real change is told, where it is said to begin.

A fleet is 20 series of service and model with 12 stages each (240 stage series). A false notification is a confirmed
change where nothing was changed; changes of one series within an hour count once. Beside it, on the same series, the
plain rule that most people start with (P95 of five minutes over 110 % of its usual, three times in a row), and with
--peers Apache Otava on those P95 values. --points DIR adds the labelled series of NAB (csv.gz, combined_windows.json).
"""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import venv
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from harness import Figure, arguments, quantile, report, workspace
from week import METRICS, STAGES, Change, Week, week

from tailtrace.analytics.detection.counts import PER_DAY, counts
from tailtrace.analytics.detection.detector import detect
from tailtrace.analytics.detection.stages import growth

REFERENCE_DAYS: Final = 3
AFTER_HOURS: Final = 12
FLEET: Final = 20
PROBATION: Final = 0.15
"""Share of a labelled series that NAB lets a detector learn from."""
_AT: Final = REFERENCE_DAYS * PER_DAY
CHANGES: Final = {
    "decode_3": ("decode", 1.03, 0.0),
    "decode_5": ("decode", 1.05, 0.0),
    "decode_10": ("decode", 1.10, 0.0),
    "prefill_30": ("prefill", 1.30, 0.0),
    "queue": ("queue", 1.0, 400e6),
}
_OTAVA: Final = """
import json, sys
from otava.analysis import compute_change_points
for line in sys.stdin:
    points, _ = compute_change_points(json.loads(line), window_len=50, max_pvalue=0.0001, min_magnitude=0.05)
    print(json.dumps([int(p.index) for p in points]))
"""


def confirmed(made: Week, since: int, until: int) -> list[tuple[int, int, str]]:
    """(confirmed, onset, metric) of the series' changes in [since, until), over its metrics, one for each hour."""
    found: list[tuple[int, int, str]] = []
    for metric in METRICS:
        judged = detect(made.counts(metric), until=until, judge_from=_AT)
        found += [(each.confirmed, each.onset, metric) for each in judged.changes if each.confirmed is not None]
    once: list[tuple[int, int, str]] = []
    for at, began, metric in sorted(found):
        if since <= at < until and (not once or at - once[-1][0] > 12):
            once.append((at, began, metric))
    return once


def p95(made: Week) -> Any:
    """P95 of the duration by interval, NaN where there is nothing."""
    values = made.values("duration")
    edges = np.searchsorted(made.interval, np.arange(int(made.interval[-1]) + 2))
    return np.array([np.quantile(values[a:b], 0.95) if b > a else np.nan for a, b in pairwise(edges.tolist())])


def plain_threshold(series: Any) -> list[int]:
    """Intervals at which three P95 values in a row are 10 % over the reference's median; once until it is below."""
    over = series > 1.1 * np.nanmedian(series[:_AT])
    hits = over[_AT:] & over[_AT - 1 : -1] & over[_AT - 2 : -2]
    return [int(at) + _AT for at in np.flatnonzero(hits & ~np.concatenate(([False], hits[:-1])))]


def quiet(job: tuple[int, int, float, bool]) -> tuple[int, int, list[float]]:
    """False notifications of a series in the week after its reference, ours and the plain rule's, and its P95."""
    seed, series, days, stepped = job
    step = int((REFERENCE_DAYS + days / 2) * PER_DAY) if stepped else None
    made = week(seed, series, days=REFERENCE_DAYS + days, mix_step=step)
    until = int((REFERENCE_DAYS + days) * PER_DAY)
    values = p95(made)
    return len(confirmed(made, _AT, until)), len(plain_threshold(values)), values.tolist()


def changed(job: tuple[int, str]) -> dict[str, Any]:
    """One change put into a series at a random hour of the day after the reference: when it was told, and what."""
    seed, name = job
    stage, factor, added = CHANGES[name]
    at = _AT + 12 + int(np.random.default_rng([seed, 7]).integers(0, PER_DAY // 2))
    until = at + AFTER_HOURS * 12
    made = week(
        seed, 1000 + list(CHANGES).index(name), days=REFERENCE_DAYS + (until - _AT) / PER_DAY,
        change=Change(stage, at, factor, added),
    )  # fmt: skip
    told = [each for each in confirmed(made, at, until) if each[0] >= at]
    values = p95(made)
    plain = [when for when in plain_threshold(values) if when >= at]
    answer: dict[str, Any] = {
        "name": name,
        "delay_min": 5.0 * (told[0][0] + 1 - at) if told else None,
        "plain_min": 5.0 * (plain[0] + 1 - at) if plain else None,
        "onset_off": abs(told[0][1] - at) if told else None,
        "root": None,
        "values": values.tolist(),
        "at": at,
    }
    if told:
        when, began, metric = told[0]
        grown = growth(STAGES, made.cells(began - PER_DAY, began, metric), made.cells(began, when + 1, metric))
        answer["root"] = bool(grown) and grown[0].stage == stage
    return answer


def otava(work: Path, series: Sequence[list[float]]) -> list[list[int]]:
    """Change points of each series by Apache Otava in an environment of its own."""
    home = work / "otava"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "apache-otava"], check=True)
    text = "\n".join(json.dumps(each) for each in series)
    done = subprocess.run([python, "-c", _OTAVA], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def labelled(folder: Path) -> tuple[int, int, int]:
    """(windows, windows with a detection, detections outside) over NAB's series, each value as one kind of traffic.

    They are metrics sampled every five minutes, not requests: every value counts as 50 requests spread by its noise.
    """
    windows = json.loads((folder / "combined_windows.json").read_text())
    total = hits = outside = 0
    for path in sorted(folder.rglob("*.csv.gz")):
        key = path.name.removesuffix(".gz").replace("__", "/")
        if key not in windows:
            continue
        with gzip.open(path, "rt") as file:
            rows = list(csv.DictReader(file))
        times = np.array([_unix(row["timestamp"]) // 300 for row in rows])
        values = np.maximum(np.array([float(row["value"]) for row in rows]), 1e-9) * 1e6
        bucket = np.ceil(np.log(np.maximum(values, 1.0)) / np.log(1.02)).astype(np.int64)
        cells = counts(times, np.zeros(len(times), np.int64), bucket, np.full(len(times), 50))
        start = int(times.min() + PROBATION * (times.max() - times.min()))
        judged = detect(cells, until=int(times.max()) + 1, judge_from=start)
        spans = [(_unix(a) // 300, _unix(b) // 300) for a, b in windows[key]]
        found = [each.confirmed for each in judged.changes if each.confirmed is not None]
        total += len(spans)
        hits += sum(any(a <= at <= b for at in found) for a, b in spans)
        outside += sum(not any(a <= at <= b for a, b in spans) for at in found)
    return total, hits, outside


def _unix(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=20, help="changes of each kind")
    parser.add_argument("--weeks", type=int, default=4, help="quiet weeks of the fleet, half with a mix step")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--peers", action="store_true", help="also Apache Otava, installed by pip into --work")
    parser.add_argument("--points", type=Path, default=None, help="folder of NAB's labelled series")
    options = parser.parse_args()
    seeds, weeks, days, fleet = (2, 1, 1.0, 4) if options.quick else (options.seeds, options.weeks, 7.0, FLEET)
    figures: dict[str, Figure] = {}
    with workspace(options.work) as work, ProcessPoolExecutor(options.workers) as pool:
        runs = []
        for name in CHANGES:
            own = list(pool.map(changed, [(options.seed + s, name) for s in range(seeds)]))
            runs += own
            delays = [each["delay_min"] for each in own if each["delay_min"] is not None]
            label = name.removeprefix("decode_")
            figures[f"found_{label}_of"] = len(delays) / len(own)
            # A change that was not told within the run counts with its whole length.
            late = [AFTER_HOURS * 60.0] * (len(own) - len(delays))
            figures[f"delay_min_{label}"] = quantile(delays + late, 0.5)
            figures[f"delay_p90_min_{label}"] = quantile(delays + late, 0.9)
            plain = [each["plain_min"] for each in own]
            plain_late = [AFTER_HOURS * 60.0 if minutes is None else minutes for minutes in plain]
            figures[f"plain_delay_min_{label}"] = quantile(plain_late, 0.5)
            print(
                f"{name}: told {len(delays)} of {len(own)}, after {figures[f'delay_min_{label}']:.0f} min "
                f"(P90 {figures[f'delay_p90_min_{label}']:.0f}, plain rule {figures[f'plain_delay_min_{label}']:.0f})",
                flush=True,
            )
        calm = []
        scale = FLEET / fleet * 7.0 / days / weeks
        for w in range(weeks):
            calm += list(pool.map(quiet, [(options.seed + w, series, days, w % 2 == 1) for series in range(fleet)]))
            print(
                f"quiet week {w + 1} of the fleet: {sum(each[0] for each in calm[-fleet:])} false, "
                f"plain rule {sum(each[1] for each in calm[-fleet:])}",
                flush=True,
            )
        figures["false_per_week_fleet"] = scale * sum(each[0] for each in calm)
        figures["plain_false_per_week_fleet"] = scale * sum(each[1] for each in calm)
        told = [each for each in runs if each["onset_off"] is not None]
        figures["onset_intervals"] = quantile([each["onset_off"] for each in told], 0.5) if told else None
        figures["onset_within_2"] = sum(each["onset_off"] <= 2 for each in told) / len(told) if told else None
        figures["root_stage_right"] = sum(bool(each["root"]) for each in told) / len(told) if told else None
        if options.peers:
            points = otava(work, [each[2] for each in calm] + [each["values"] for each in runs])
            figures["otava_false_per_week_fleet"] = scale * sum(
                sum(at >= _AT for at in each) for each in points[: len(calm)]
            )
            after = zip(points[len(calm) :], runs, strict=True)
            hits = [any(abs(at - run["at"]) <= 12 for at in each) for each, run in after]
            figures["otava_found"] = sum(hits) / len(hits)
        if options.points:
            total, hit, outside = labelled(options.points)
            figures |= {"nab_windows": total, "nab_windows_hit": hit, "nab_outside": outside}
    report("regressions", options.seed, figures)


if __name__ == "__main__":
    main()
