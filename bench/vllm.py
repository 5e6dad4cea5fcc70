"""What `tailtrace run` costs a real vLLM, and how much of its requests is explained.

Two servers on one machine, one with and one without, get the same requests in turn: many short runs, with, without,
without, with. Two servers that are quite alike differ by some percent for as long as they live (where their memory came
to lie), so several pairs of servers are started, each in the other order than the one before. A figure is the median of
the ratios of runs for each pair of servers, and of these the mean; its interval comes from resampling both.

What makes a vLLM on two cores run at half its speed now and then is taken away from both alike:
- The engine runs inside the engine core's process ("uni"), as it does on one GPU. With a worker beside it both poll a
  ring in shared memory without a rest, one second beyond the last request, on the cores that the other server needs.
- Engine and API server have a core each, one thread computes, and what Python's hashes and the system's addresses would
  draw anew at each start is the same for both.
- A server whose turn it is not is stopped by a signal: neither its polls nor its waking threads disturb the other, and
  what it has yet to send is its own next run's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from collected import Collected, JudgedRequest, collecting, judged, settle, spans_of
from harness import Figure, arguments, cpu_seconds, quantile, report, tree, workspace
from vllm_server import Answer, Server, call, load, serving, words

IN_THE_CORE = ("--distributed-executor-backend", "uni")
ALIKE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
STEADY_AFTER = 6
"""Runs of a server that are not counted, at least; more while it still gets faster."""

NO_RANDOM_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE of personality(2)

Work = Callable[[int], Awaitable[list[Answer]]]


@dataclass(frozen=True)
class Run:
    """One server's turn: seconds, CPU seconds of all its processes, and what the client saw."""

    seconds: float
    cpu_s: float
    answers: list[Answer]

    @property
    def ttft_ms(self) -> float:
        return statistics.median(answer.ttft_ms for answer in self.answers if answer.ttft_ms is not None)


Pair = tuple[Run, Run]
"""With and without."""


class Turns:
    """Two servers of which one runs at a time."""

    def __init__(self, ours: Server, plain: Server) -> None:
        self._servers = (ours, plain)
        cores = sorted(os.sched_getaffinity(0))
        for server in self._servers:
            for process in tree(server.pid):
                core = cores[-1] if "EngineCore" in process.name() else cores[0]
                for thread in process.threads():
                    with suppress(ProcessLookupError):
                        os.sched_setaffinity(thread.id, {core})
        # With two cores this client is beside the API server, and never in the engine's way.
        os.sched_setaffinity(0, set(cores[1:-1]) or {cores[0]})

    def signal(self, server: Server, number: signal.Signals) -> None:
        for process in tree(server.pid):
            process.send_signal(number)

    def run(self, server: Server, work: Work) -> Run:
        self.signal(server, signal.SIGCONT)
        before = cpu_seconds(server.pid)
        seconds, answers = asyncio.run(_timed(work, server.port))
        cpu_s = cpu_seconds(server.pid) - before
        self.signal(server, signal.SIGSTOP)
        if any(answer.status != 200 for answer in answers):
            raise RuntimeError(f"vLLM did not answer: {server.log.read_text(errors='replace')[-2000:]}")
        return Run(seconds, cpu_s, answers)

    def pair(self, work: Work, *, turned: bool) -> Pair:
        """The same work for both; the one without first where `turned`."""
        order = self._servers[::-1] if turned else self._servers
        first, second = [self.run(server, work) for server in order]
        return (second, first) if turned else (first, second)


@contextmanager
def in_turn(ours: Server, plain: Server) -> Iterator[Turns]:
    """Both stopped, until one is run; both running again at the end."""
    cores = os.sched_getaffinity(0)
    turns = Turns(ours, plain)
    try:
        for server in (ours, plain):
            turns.signal(server, signal.SIGSTOP)
        yield turns
    finally:
        os.sched_setaffinity(0, cores)
        for server in (ours, plain):
            turns.signal(server, signal.SIGCONT)


def start_alike() -> None:
    """What this process starts from now on has its memory at the same addresses each time, where the system can."""
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is not None:
        personality(personality(0xFFFFFFFF) | NO_RANDOM_ADDRESSES)


@contextmanager
def started(vllm: Path, work: Path, endpoint: str, *, ours_first: bool) -> Iterator[tuple[Server, Server]]:
    """One server with `tailtrace run` and one without."""
    with ExitStack() as stack:
        servers: dict[bool, Server] = {}
        for with_ours in (ours_first, not ours_first):
            prefix = ("tailtrace", "run", "--") if with_ours else ()
            environ = {**ALIKE, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
            log = work / ("with.log" if with_ours else "without.log")
            servers[with_ours] = stack.enter_context(
                serving(vllm, log, prefix=prefix, arguments=IN_THE_CORE, environ=environ)
            )
        yield servers[True], servers[False]


async def _timed(work: Work, port: int) -> tuple[float, list[Answer]]:
    loop = asyncio.get_running_loop()
    start = loop.time()
    answers = await work(port)
    return loop.time() - start, answers


def many_at_once(requests: int, seed: int) -> Work:
    """A mixed load of four clients in a closed loop."""

    async def work(port: int) -> list[Answer]:
        return (await load(port, requests, random.Random(seed)))[1]

    return work


def one_at_a_time(requests: int, seed: int) -> Work:
    """Short streamed requests, each sent when the one before is answered: of these TTFT is told."""

    async def work(port: int) -> list[Answer]:
        rng = random.Random(seed)
        answers = []
        for index in range(requests):
            text = words(rng, 40)
            body = {"model": "tiny", "max_tokens": 4, "ignore_eos": True, "stream": True, "temperature": 0}
            if index % 2:
                answers.append(await call(port, "/v1/completions", {**body, "prompt": text}))
            else:
                said = {**body, "messages": [{"role": "user", "content": text}]}
                answers.append(await call(port, "/v1/chat/completions", said))
        return answers

    return work


def warm_up(turns: Turns, requests: int, seed: int, at_least: int) -> None:
    """Runs of both until the latest three are not faster than the three before."""
    seconds: list[float] = []
    while len(seconds) < at_least or (
        len(seconds) < 5 * at_least and statistics.median(seconds[-3:]) < 0.97 * statistics.median(seconds[-6:-3])
    ):
        run, _ = turns.pair(many_at_once(requests, seed + len(seconds)), turned=bool(len(seconds) % 2))
        turns.pair(one_at_a_time(4, seed), turned=False)
        seconds.append(run.seconds)


Rounds = Sequence[Sequence[float]]
"""Ratios of runs, by pair of servers."""


def middle(rounds: Rounds) -> float:
    return statistics.mean(statistics.median(ratios) for ratios in rounds)


def interval(rounds: Rounds, seed: int) -> tuple[float, float]:
    """Where `middle` lies in 95 of 100 resamplings of servers and of their runs."""
    rng = random.Random(seed)

    def drawn() -> float:
        servers = rng.choices(rounds, k=len(rounds))
        return middle([rng.choices(ratios, k=len(ratios)) for ratios in servers])

    found = sorted(drawn() for _ in range(2000))
    return found[50], found[1949]


def told(name: str, rounds: Rounds, seed: int) -> float:
    """The figure, printed with what it is worth."""
    low, high = interval(rounds, seed)
    each = ", ".join(f"{statistics.median(ratios):.3f}" for ratios in rounds)
    quartiles = ", ".join(f"{q:.3f}" for q in statistics.quantiles([r for ratios in rounds for r in ratios], n=4))
    print(
        f"{name}: {middle(rounds):.4f}, interval {low:.4f} to {high:.4f}; by pair of servers {each}; runs {quartiles}"
    )
    return middle(rounds)


@dataclass
class Runs:
    """The pairs of runs of one pair of servers."""

    loaded: list[Pair]
    alone: list[Pair]


def compare(turns: Turns, pairs: int, requests: int, seed: int) -> Runs:
    """The same work for both, `pairs` times."""
    runs = Runs([], [])
    for pair in range(pairs):
        runs.loaded.append(turns.pair(many_at_once(requests, seed + pair), turned=bool(pair % 2)))
    # Apart from those, since what a stopped server has yet to send of a loaded run would be sent in one of these.
    turns.pair(one_at_a_time(requests // 2, seed), turned=False)
    for pair in range(pairs):
        runs.alone.append(turns.pair(one_at_a_time(requests // 2, seed + pair), turned=bool(pair % 2)))
    rates = [requests * pairs / sum(both[side].seconds for both in runs.loaded) for side in (0, 1)]
    print(f"  a pair of servers, {pairs} pairs of runs: {rates[0]:.2f} and {rates[1]:.2f} requests/s", flush=True)
    return runs


def judge(rounds: Sequence[Runs], requests: int, seed: int) -> tuple[float, float]:
    """Throughput and TTFT P50, with / without."""
    print()
    loaded, alone = [runs.loaded for runs in rounds], [runs.alone for runs in rounds]
    for name, by_server, count in (("four at once", loaded, requests), ("one at a time", alone, requests // 2)):
        cpu = [statistics.mean(both[side].cpu_s for runs in by_server for both in runs) / count for side in (0, 1)]
        print(
            f"CPU of all of vLLM's processes, {name}: {cpu[0] * 1e3:.2f} ms a request with, {cpu[1] * 1e3:.2f} without"
        )
        told(
            f"CPU with / without, {name}",
            [[ours.cpu_s / plain.cpu_s for ours, plain in runs] for runs in by_server],
            seed,
        )
    p50 = [statistics.median(both[side].ttft_ms for runs in alone for both in runs) for side in (0, 1)]
    print(f"TTFT P50, one at a time: {p50[0]:.3f} ms with, {p50[1]:.3f} without")
    ratios = [[[ours.ttft_ms / plain.ttft_ms for ours, plain in runs] for runs in kind] for kind in (loaded, alone)]
    told("TTFT P50 with / without, four at once", ratios[0], seed)
    ttft = told("TTFT P50 with / without, one at a time", ratios[1], seed)
    faster = [[plain.seconds / ours.seconds for ours, plain in runs] for runs in loaded]
    return told("throughput with / without", faster, seed), ttft


def explained(requests: list[JudgedRequest]) -> tuple[float, float]:
    shares = [request.explained for request in requests]
    return statistics.median(shares), quantile(shares, 0.05)


def describe(collected: Collected, requests: list[JudgedRequest]) -> None:
    """The means by stage, for people."""
    total = sum(request.duration_ms for request in requests)
    sums: dict[str, float] = {}
    for request in requests:
        for stage, ms in request.stages_ms.items():
            sums[stage] = sums.get(stage, 0.0) + ms
    print(f"\n{len(requests)} requests judged; share of their time by stage:")
    print("  " + "  ".join(f"{stage} {100 * ms / total:.2f}%" for stage, ms in sums.items()))
    steps = len(spans_of(collected.bodies, scope="tailtrace.steps"))
    print(f"  {steps} steps, {sum(map(len, collected.bodies)) / max(len(requests), 1):.0f} bytes sent a request")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vllm", type=Path, help="folder with a vLLM installation and a model (docs/vllm.md)")
    parser.add_argument("--servers", type=int, default=6, help="pairs of servers that are started")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of runs of each")
    parser.add_argument("--requests", type=int, default=32, help="requests of each run")
    options = parser.parse_args()
    figures: dict[str, Figure] = dict.fromkeys(
        ("throughput_ratio", "ttft_ratio", "explained_median", "explained_p5"), None
    )
    if options.vllm is None:
        print("not measured: needs --vllm DIR")
        report("vllm", options.seed, figures)
        return
    servers, pairs, requests, warm = options.servers, options.pairs, options.requests, STEADY_AFTER
    if options.quick:
        servers, pairs, requests, warm = 1, 3, 12, 2
    rounds: list[Runs] = []
    start_alike()
    with workspace(options.work) as work, collecting() as collected:
        for number in range(servers):
            last = number == servers - 1
            with started(options.vllm, work, collected.endpoint, ours_first=number % 2 == 0) as (ours, plain):
                with in_turn(ours, plain) as turns:
                    warm_up(turns, requests, options.seed, warm)
                    rounds.append(compare(turns, pairs, requests, options.seed + number * pairs))
                collected.bodies.clear()
                if last:
                    settle(collected)
                    collected.bodies.clear()
                    asyncio.run(load(ours.port, 12 * requests, random.Random(options.seed), aborts=True))
                    settle(collected)
        figures["throughput_ratio"], figures["ttft_ratio"] = judge(rounds, requests, options.seed)
        found = judged(collected.bodies, "/v1/")
        figures["explained_median"], figures["explained_p5"] = explained(found)
        describe(collected, found)
    report("vllm", options.seed, figures)


if __name__ == "__main__":
    main()
