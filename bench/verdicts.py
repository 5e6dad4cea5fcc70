"""Verdicts against known causes: scenarios of the lab, constants drawn anew by seed, through store, jobs and queries.

`--scenarios DIR` takes every .toml file below it, `--seeds a-b` draws each anew that often. A window is that of a
fault; its reference is what came before. Right: the headline names the cause that added most, or one that added nearly
as much; where evidence was removed (by the file, or by `--removed`), `unknown` is allowed and counted.

Single requests are judged too, `--requests` of the slower half of each window. What is right of one is measured: the
same request is simulated without the faults. What they added must be named where it is most of what the request took
more than usual; its own length where that is.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from harness import arguments, report, workspace

from tailtrace.analytics.jobs.requests import run_requests
from tailtrace.analytics.queries.gpu_idle import gpu_idle
from tailtrace.analytics.queries.verdicts import verdict_of_one
from tailtrace.analytics.queries.why import why
from tailtrace.ingest.framing import frame
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store
from tailtrace.lab import Scenario, history, history_metrics, list_scenarios
from tailtrace.lab.clock import SECOND
from tailtrace.lab.ground_truth import InjectedCause, truth_of
from tailtrace.lab.ground_truth import run as simulate
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import REMOVED, Evidence
from tailtrace.lab.simulation import Simulation
from tailtrace.lab.telemetry.journey import Journey

EPOCH_NS = 1_795_000_000 * SECOND
SPACING_NS = 4 * 3600 * SECOND
NEARLY = 0.6  # of what the largest cause of a window added
NONE = "as before"
OWN = frozenset({"longer_output", "longer_input", "cache_miss"})  # what makes a request slower by itself
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
    loaded = [Scenario.load(path if folder else path.name) for path in paths]
    number = 0
    for seed in seeds:
        for scenario in loaded:
            if scenario.hours > 3 or scenario.name == "live" or (only and scenario.name not in only):
                continue
            number += 1
            yield Case(scenario.drawn(seed), seed, EPOCH_NS + number * SPACING_NS)


def store_case(store: Store, folder: Path, case: Case) -> None:
    """The case's spans, steps and counters, put in as the receiver puts them."""
    for signal, bodies in (("traces", history), ("metrics", history_metrics)):
        path = folder / f"{uuid4()}.otlp"
        with path.open("wb") as file:
            for body in bodies(case.scenario, end_unix_ns=case.end_ns, seed=case.seed):
                file.write(frame(body) + body)
        if path.stat().st_size:
            store.insert_segment(signal, path, str(uuid4()))  # type: ignore[arg-type]
        path.unlink()


def questions(case: Case, causes: Sequence[InjectedCause]) -> Iterator[Question]:
    """One for each service that a fault touched; for a run without faults one for each of its services."""
    scenario = case.scenario
    lacking = scenario.evidence != Evidence()
    if not scenario.faults:
        end, length = case.end_ns, int(scenario.hours * 3600 * SECOND)
        for service in (scenario.fleet.gateway, *(each.name for each in scenario.fleet.services)):
            yield Question(case, service, end - length // 3, end, frozenset({NONE}), False)
        return
    for service in sorted({cause.service for cause in causes}):
        # The gateway's requests wait for everything behind it.
        own = [cause for cause in causes if service in (cause.service, scenario.fleet.gateway)]
        largest = max(cause.added_ns for cause in own)
        right = frozenset(cause.code for cause in own if cause.added_ns >= NEARLY * largest)
        since, until = min(cause.start_unix_ns for cause in own), max(cause.end_unix_ns for cause in own)
        yield Question(case, service, since, until, right, lacking)


@dataclass(frozen=True, slots=True)
class One:
    """A single request of a window: the part of its excess that the faults added (over 1 where it would have been
    faster than the usual one).
    """

    start_ns: int
    duration_ns: int
    faulty: float


def single_requests(store: Store, question: Question, runs: tuple[Simulation, Simulation], count: int) -> list[One]:
    """Some of the slower half of the window's requests, drawn by a hash of their trace ids."""
    hit, calm = runs
    whole = question.service == question.case.scenario.fleet.gateway
    since = question.since_ns - hit.start_unix_ns
    usual = [
        total_ns(request, calm, whole)
        for request in calm.finished
        if request.outcome == "ok" and since - 3600 * SECOND <= request.arrival_ns < since
        and (whole or request.service == question.service)
    ]  # fmt: skip
    if not usual or not count:
        return []
    mean = sum(usual) / len(usual)
    by_start = {start_of(request, whole): request for request in hit.finished if request.outcome == "ok"}
    twins = {(request.service, request.arrival_ns): request for request in calm.finished if request.outcome == "ok"}
    window = {"since": question.since_ns, "until": question.until_ns, "service": question.service}
    found = []
    for row in store.query(_SLOWER_HALF, window):
        request = by_start.get(int(row["start"]) - hit.start_unix_ns)
        excess = int(row["duration"]) - mean
        if request is None or excess < 0.12 * mean:
            continue
        twin = twins.get((request.service, request.arrival_ns))
        # A request that came only because of the fault would not have taken any time.
        without = total_ns(twin, calm, whole) if twin else mean
        added = total_ns(request, hit, whole) - without
        found.append(One(int(row["start"]), int(row["duration"]), added / excess))
        if len(found) == count:
            break
    return found


_SLOWER_HALF = """
WITH (SELECT quantileExact(0.5)(DurationNs) FROM requests WHERE Service = {service:String} AND Kind = 'request'
  AND Start >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Start < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND Outcome = 'ok') AS half
SELECT toUnixTimestamp64Nano(Start) AS start, toInt64(DurationNs) AS duration FROM requests
WHERE Service = {service:String} AND Kind = 'request' AND Outcome = 'ok' AND DurationNs > half
  AND Start >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Start < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
ORDER BY cityHash64(TraceId) LIMIT 200
"""


def start_of(request: Request, whole: bool) -> int:
    return request.arrival_ns if whole else request.engine_start_ns


def total_ns(request: Request, simulation: Simulation, whole: bool) -> int:
    """From the first to the last of its stages: of all, or of those behind the gateway."""
    journey = Journey(request, simulation.constants)
    stages = [*journey.gateway, *journey.engine] if whole else journey.engine
    return max(end for _, _, end in stages) - min(start for _, start, _ in stages)


def right_of_one(question: Question, one: One) -> frozenset[str]:
    """Faults where they added most of the excess, the request's own make-up where that did; either in between."""
    faults = question.right - {NONE}
    return (faults if one.faulty > 0.35 else frozenset()) | (OWN if one.faulty < 0.65 else frozenset())


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


def print_calibration(said: Counter[tuple[str, bool]], wrong: Counter[tuple[str, str]]) -> None:
    """How often the verdict of a single request was right, by how sure it was."""
    print("\nsingle requests    verdicts  right")
    for confidence in ("high", "medium", "low"):
        right, n = said[confidence, True], said[confidence, True] + said[confidence, False]
        print(f"  {confidence:16s} {n:8d}  {right / n:.1%}" if n else f"  {confidence:16s} {0:8d}  -")
    for (wanted, cause), n in wrong.most_common(10):
        print(f"  high and wrong: {cause} instead of {wanted} ({n})")


@dataclass(slots=True)
class Tally:
    """What was said against what was right."""

    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    single: Counter[tuple[str, bool]] = field(default_factory=Counter)
    single_wrong: Counter[tuple[str, str]] = field(default_factory=Counter)

    def window(self, question: Question, said: str, confidence: str) -> None:
        case, right = question.case, said in question.right
        excused = question.unknown_allowed and said == "unknown"
        self.counts["n"] += 1
        self.counts["right"] += right or excused
        self.counts["unknown_allowed"] += excused
        self.counts["high_wrong"] += confidence == "high" and not right
        self.counts["high_right"] += confidence == "high" and right
        self.pairs["/".join(sorted(question.right)), said] += 1
        if not (right or excused):
            print(f"  {case.scenario.name} seed {case.seed} {question.service}: said {said} ({confidence})")

    def request(self, question: Question, one: One, said: str, confidence: str) -> None:
        wanted = right_of_one(question, one)
        self.single[confidence, said in wanted] += 1
        if confidence == "high" and said not in wanted:
            self.single_wrong["/".join(sorted(wanted)), said] += 1


def runs_of(case: Case) -> list[Simulation]:
    """The case with all its faults, with none, and for each fault with all but that one."""
    calm = case.scenario.without_faults()
    faults = case.scenario.faults
    rest = [replace(case.scenario, faults=(*faults[:at], *faults[at + 1 :])) for at in range(len(faults))]
    made = {each: simulate(each, end_unix_ns=case.end_ns, seed=case.seed) for each in {case.scenario, calm, *rest}}
    return [made[each] for each in (case.scenario, calm, *rest)]


def judge_case(store: Store, folder: Path, case: Case, requests: int, tally: Tally) -> None:
    """Puts a case through the product and asks about its windows, and about single requests of them."""
    store_case(store, folder, case)
    now = int(store.query("SELECT toUnixTimestamp64Milli(now64(3)) AS now")[0]["now"])
    while run_requests(store, now_ms=now + 20_000).behind:
        pass
    made = runs_of(case)
    asked = list(questions(case, truth_of(case.scenario, made[0], made[2:], case.seed).causes))
    for question in asked:
        tally.window(question, *answer(store, question))
    if not requests or case.scenario.evidence != Evidence() or any(one.right == {"no_work"} for one in asked):
        return
    for question in asked:
        for one in single_requests(store, question, (made[0], made[1]), requests):
            found = verdict_of_one(store, question.service, one.start_ns, one.duration_ns).verdict
            if found is not None:
                tally.request(question, one, found.cause, found.confidence)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument(
        "--scenarios", type=Path, default=None, help="folder of scenario files (default: the lab's own)"
    )
    parser.add_argument("--seeds", default="", help="a-b, both included (default: three from --seed on)")
    parser.add_argument("--only", nargs="*", default=[], help="names of scenarios")
    parser.add_argument("--removed", nargs="*", default=[], choices=[*REMOVED], help="evidence to take away")
    parser.add_argument("--requests", type=int, default=3, help="single requests judged in each window")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1) if first else range(options.seed, options.seed + 3)
    if options.quick:
        options.only, seeds = list(QUICK), range(options.seed, options.seed + 1)
    tally = Tally()
    with workspace(options.work) as folder:
        store = open_store(ServerSettings(data=folder / "verdicts"))
        try:
            for case in cases(options.scenarios, seeds, options.only):
                began, used = time.monotonic(), time.process_time()
                scenario = case.scenario.without(*options.removed) if options.removed else case.scenario
                judge_case(store, folder, replace(case, scenario=scenario), options.requests, tally)
                print(
                    f"{scenario.name:24s} seed {case.seed}  {time.process_time() - used:.1f} s of CPU,"
                    f" {time.monotonic() - began:.1f} s",
                    flush=True,
                )
        except KeyboardInterrupt:
            print("stopped: the figures are those of the cases above")
        store.close()
    counts, high = tally.counts, tally.single["high", True] + tally.single["high", False]
    print_confusion(tally.pairs)
    print_calibration(tally.single, tally.single_wrong)
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
            "single_n": sum(tally.single.values()),
            "single_high_n": high,
            "single_high_right": tally.single["high", True] / high if high else None,
        },
    )


if __name__ == "__main__":
    main()
