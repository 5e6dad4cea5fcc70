"""Verdicts against known causes: scenarios of the lab, constants drawn anew by seed, through store, jobs and queries.

`--scenarios DIR` takes every .toml file below it, `--seeds a-b` draws each anew that often. A window is that of a
fault; its reference is what came before. Right: the headline names the cause that added most, or one that added nearly
as much; where a file's evidence was removed, `unknown` is allowed and counted.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from harness import arguments, report, workspace

from tailtrace.analytics.jobs.requests import run_requests
from tailtrace.analytics.queries.gpu_idle import gpu_idle
from tailtrace.analytics.queries.why import why
from tailtrace.ingest.framing import frame
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store
from tailtrace.lab import Scenario, history, history_metrics, list_scenarios, truth
from tailtrace.lab.clock import SECOND
from tailtrace.lab.ground_truth import InjectedCause
from tailtrace.lab.scenario import Evidence

EPOCH_NS = 1_795_000_000 * SECOND
SPACING_NS = 4 * 3600 * SECOND
NEARLY = 0.6  # of what the largest cause of a window added
NONE = "as before"
QUICK = ("throttled", "kv_full", "auth_dependency", "healthy_hour")


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario drawn with one seed, its run ending at `end_ns`."""

    scenario: Scenario
    seed: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Question:
    """A window of a service and the answers that are right; `unknown` is allowed where evidence was removed."""

    case: Case
    service: str
    since_ns: int
    until_ns: int
    right: frozenset[str]
    unknown_allowed: bool


def cases(folder: Path | None, seeds: range, only: list[str]) -> Iterator[Case]:
    """Every scenario of an hour or so with every seed, each at a time of its own."""
    paths = sorted(folder.rglob("*.toml")) if folder else [Path(name) for name in list_scenarios()]
    number = 0
    for path in paths:
        scenario = Scenario.load(path if folder else path.name)
        if scenario.hours > 3 or scenario.name == "live" or (only and scenario.name not in only):
            continue
        for seed in seeds:
            number += 1
            yield Case(scenario.drawn(seed), seed, EPOCH_NS + number * SPACING_NS)


def store_case(store: Store, folder: Path, case: Case) -> None:
    """The case's spans, steps and counters, put in as the receiver puts them."""
    for signal, bodies in (("traces", history), ("metrics", history_metrics)):
        made = list(bodies(case.scenario, end_unix_ns=case.end_ns, seed=case.seed))
        for start in range(0, len(made), 12):
            path = folder / f"{uuid4()}.otlp"
            path.write_bytes(b"".join(frame(body) + body for body in made[start : start + 12]))
            store.insert_segment(signal, path, str(uuid4()))  # type: ignore[arg-type]
            path.unlink()


def questions(case: Case) -> Iterator[Question]:
    """One for each service that a fault touched; for a run without faults one for each of its services."""
    scenario = case.scenario
    lacking = scenario.evidence != Evidence()
    if not scenario.faults:
        end, length = case.end_ns, int(scenario.hours * 3600 * SECOND)
        for service in (scenario.fleet.gateway, *(each.name for each in scenario.fleet.services)):
            yield Question(case, service, end - length // 3, end, frozenset({NONE}), False)
        return
    causes: Sequence[InjectedCause] = truth(scenario, end_unix_ns=case.end_ns, seed=case.seed).causes
    for service in sorted({cause.service for cause in causes}):
        # The gateway's requests wait for everything behind it.
        own = [cause for cause in causes if service in (cause.service, scenario.fleet.gateway)]
        largest = max(cause.added_ns for cause in own)
        right = frozenset(cause.code for cause in own if cause.added_ns >= NEARLY * largest)
        since, until = min(cause.start_unix_ns for cause in own), max(cause.end_unix_ns for cause in own)
        yield Question(case, service, since, until, right, lacking)


def answer(store: Store, question: Question) -> tuple[str, str]:
    """(headline, confidence) as the product says it."""
    if question.right == {"no_work"}:
        idle = gpu_idle(store, question.service, question.since_ns, question.until_ns)
        waits = [total for total in idle.totals if total.state == "idle"]
        return (max(waits, key=lambda total: total.ns).cause, "high") if waits else (NONE, "high")
    found = why(store, question.service, question.since_ns, question.until_ns)
    if found.state == "too_few":
        return ("unknown", "low")
    return (found.verdict.cause, found.verdict.confidence) if found.verdict else (NONE, "high")


def print_confusion(pairs: Counter[tuple[str, str]]) -> None:
    """What was injected (rows) against what was said, largest first."""
    by_row: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for (wanted, said), n in pairs.items():
        by_row[wanted].append((n, said))
    print(f"\n{'injected':24s} said (times)")
    for wanted in sorted(by_row):
        said = ", ".join(f"{name} {n}" for n, name in sorted(by_row[wanted], reverse=True))
        print(f"{wanted:24s} {said}")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument(
        "--scenarios", type=Path, default=None, help="folder of scenario files (default: the lab's own)"
    )
    parser.add_argument("--seeds", default="", help="a-b, both included (default: three from --seed on)")
    parser.add_argument("--only", nargs="*", default=[], help="names of scenarios")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1) if first else range(options.seed, options.seed + 3)
    if options.quick:
        options.only, seeds = list(QUICK), range(options.seed, options.seed + 1)
    pairs: Counter[tuple[str, str]] = Counter()
    counts: Counter[str] = Counter()
    with workspace(options.work) as folder:
        store = open_store(ServerSettings(data=folder / "verdicts"))
        for case in cases(options.scenarios, seeds, options.only):
            began = time.monotonic()
            store_case(store, folder, case)
            now = int(store.query("SELECT toUnixTimestamp64Milli(now64(3)) AS now")[0]["now"])
            while run_requests(store, now_ms=now + 20_000).behind:
                pass
            for question in questions(case):
                said, confidence = answer(store, question)
                right = said in question.right
                excused = question.unknown_allowed and said == "unknown"
                counts["n"] += 1
                counts["right"] += right or excused
                counts["unknown_allowed"] += excused
                counts["high_wrong"] += confidence == "high" and not right
                counts["high_right"] += confidence == "high" and right
                pairs["/".join(sorted(question.right)), said] += 1
                if not (right or excused):
                    print(f"  {case.scenario.name} seed {case.seed} {question.service}: said {said} ({confidence})")
            print(f"{case.scenario.name:24s} seed {case.seed}  {time.monotonic() - began:.1f} s", flush=True)
        store.close()
    print_confusion(pairs)
    certain = counts["right"] - counts["unknown_allowed"]
    report(
        "verdicts",
        seeds.start,
        {
            "n": counts["n"],
            "right": counts["right"] / max(counts["n"], 1),
            "unknown_allowed": counts["unknown_allowed"],
            "high_wrong": counts["high_wrong"],
            "high_of_right": counts["high_right"] / max(certain, 1),
        },
    )


if __name__ == "__main__":
    main()
