"""Does explained mean right? A delay at a known place of a real vLLM, or of the lab, must be found in its stage alone.

Each case is 100 pairs of the same request, one with and one without the delay, in turn; a case is right when the median
growth of the stage that should grow is that of the delay within 10 %, and no other grows by more than 2 % of it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from collected import Collected, JudgedRequest, collecting, judged
from harness import Figure, arguments, report, workspace
from injected_lab import lab_body, lab_serving
from vllm_server import call, serving, words

INJECTION = Path(__file__).parent / "injection"
RIGHT_WITHIN = 0.10
SPILL_LIMIT = 0.02


@dataclass(frozen=True)
class Case:
    """A delay by name, how long, and the stage it belongs to. `reader`: the client reads late, so that only its own
    stage's share of the growth can be known, which is the growth of the whole request."""

    delay: str
    milliseconds: float
    stage: str
    reader: bool = False


VLLM_CASES = (
    *(
        Case(delay, milliseconds, stage)
        for delay, stage in (
            ("tokenizer", "tokenize"), ("auth", "auth"), ("loop_arrival", "net_in"), ("loop_return", "engine_return"),
            ("schedule", "queue"), ("execute_prefill", "prefill"), ("execute_decode", "decode"),
        )
        for milliseconds in (120, 300)
    ),
    Case("reader", 900, "stream_out", reader=True),
)  # fmt: skip
LAB_CASES = tuple(
    Case(delay, milliseconds, stage)
    for delay, stage in (
        ("lab_tokenizer", "tokenize"), ("lab_auth", "auth"), ("lab_loop", "engine_submit"), ("lab_schedule", "queue"),
        ("lab_execute", "prefill"),
    )
    for milliseconds in (120, 300)
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    case: Case
    injected_ms: float
    grown_ms: float
    spill_ms: float
    spill_stage: str

    @property
    def right(self) -> bool:
        exact = abs(self.grown_ms - self.injected_ms) <= RIGHT_WITHIN * self.injected_ms
        return exact and self.spill_ms <= SPILL_LIMIT * self.injected_ms


async def run_case(
    ports: dict[str, int], collected: Collected, delays: Path, case: Case, pairs: int, seed: int
) -> Verdict:
    """Sends the pairs, waits for their spans, compares them."""
    rng = random.Random(seed)
    switch = delays / case.delay
    sent: list[tuple[str, bool]] = []
    for pair in range(pairs):
        text = words(rng, 12)
        for on in ((True, False), (False, True))[pair % 2]:
            switch.write_text(str(case.milliseconds if on and not case.reader else 0))
            if not on:
                # The delayed one's engine idles meanwhile, and idling has a cost of its own: a cold start of its step.
                await asyncio.sleep(case.milliseconds / 1e3)
            trace_id = f"{rng.getrandbits(128):032x}"
            if case.delay.startswith("lab"):
                await _call_lab(ports, case, on, pair, trace_id)
            else:
                await _call_vllm(ports["vllm"], case, on, text, trace_id)
            sent.append((trace_id, on))
    switch.write_text("0")
    found = await _judged(collected, [trace_id for trace_id, _ in sent])
    with_delay = [found[trace_id] for trace_id, on in sent if on]
    without = [found[trace_id] for trace_id, on in sent if not on]
    return compare(case, with_delay, without)


async def _call_vllm(port: int, case: Case, on: bool, text: str, trace_id: str) -> None:
    body: dict[str, object] = {
        "model": "tiny", "prompt": text, "max_tokens": 60 if case.reader else 4, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }  # fmt: skip
    late_s = case.milliseconds / 1e3 if case.reader and on else 0.0
    answer = await call(port, "/v1/completions", body, read_after_s=late_s, trace_id=trace_id, small=True)
    if answer.status != 200:
        raise RuntimeError(f"{case.delay}: status {answer.status}")


async def _call_lab(ports: dict[str, int], case: Case, on: bool, number: int, trace_id: str) -> None:
    """Authentication is the lab's gateway's, which then refuses; all else is its engine's."""
    auth = case.delay == "lab_auth"
    body = lab_body(number, 4, case.milliseconds if auth and on else 0.0, 401 if auth else 0)
    await call(ports["gateway" if auth else "engine"], "/v1/chat/completions", body, trace_id=trace_id)


async def _judged(collected: Collected, trace_ids: list[str]) -> dict[str, JudgedRequest]:
    deadline = time.monotonic() + 20
    while True:
        found = {request.trace_id: request for request in judged(list(collected.bodies), "/v1/")}
        complete = [
            trace_id
            for trace_id in trace_ids
            if trace_id in found and (found[trace_id].row["Outcome"] != "ok" or "prefill" in found[trace_id].stages_ms)
        ]
        if len(complete) == len(trace_ids) or time.monotonic() > deadline:
            return {trace_id: found[trace_id] for trace_id in trace_ids}
        await asyncio.sleep(0.5)


def compare(case: Case, with_delay: list[JudgedRequest], without: list[JudgedRequest]) -> Verdict:
    """Median growth by stage over the pairs, so that a pair which the machine disturbed does not decide."""
    stages = sorted({stage for request in (*with_delay, *without) for stage in request.stages_ms} | {"unexplained"})
    grown = {
        stage: statistics.median(
            _ms(one, stage) - _ms(other, stage) for one, other in zip(with_delay, without, strict=True)
        )
        for stage in stages
    }
    injected = case.milliseconds
    if case.reader:
        injected = statistics.median(
            one.duration_ms - other.duration_ms for one, other in zip(with_delay, without, strict=True)
        )
    others = {stage: ms for stage, ms in grown.items() if stage != case.stage}
    worst = max(others, key=lambda stage: others[stage])
    return Verdict(case, injected, grown.get(case.stage, 0.0), others[worst], worst)


def _ms(request: JudgedRequest, stage: str) -> float:
    return request.unexplained_ms if stage == "unexplained" else request.stages_ms.get(stage, 0.0)


def run_cases(
    cases: Iterable[Case], ports: dict[str, int], collected: Collected, delays: Path, pairs: int, seed: int
) -> list[Verdict]:
    verdicts = []
    warm = "lab_none" if "engine" in ports else "none"
    asyncio.run(run_case(ports, collected, delays, Case(warm, 1, "prefill"), 5, seed))
    for number, case in enumerate(cases):
        collected.bodies.clear()
        verdict = asyncio.run(run_case(ports, collected, delays, case, pairs, seed + number))
        verdicts.append(verdict)
        print(
            f"  {case.delay:16s} {verdict.injected_ms:7.1f} ms  {case.stage:14s} grew {verdict.grown_ms:7.1f}"
            f"  most elsewhere {verdict.spill_ms:5.1f} ({verdict.spill_stage})"
            f"  {'right' if verdict.right else 'WRONG'}",
            flush=True,
        )
    return verdicts


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vllm", type=Path, help="folder with a vLLM installation and a model (docs/vllm.md)")
    parser.add_argument("--pairs", type=int, default=100)
    options = parser.parse_args()
    pairs = 5 if options.quick else options.pairs
    with workspace(options.work) as work, collecting() as collected:
        delays = work / "delays"
        delays.mkdir(exist_ok=True)
        (delays / "small_buffers").write_text("1")
        with lab_serving(collected.endpoint, delays) as ports:
            verdicts = run_cases(LAB_CASES, ports, collected, delays, pairs, options.seed)
        if options.vllm is not None:
            environ = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": collected.endpoint,
                "PYTHONPATH": str(INJECTION),
                "TAILTRACE_BENCH_DELAYS": str(delays),
            }
            with serving(
                options.vllm, work / "injected.log", prefix=("tailtrace", "run", "--"), environ=environ,
                arguments=("--middleware", "slow_auth.KeyAuthMiddleware"),
            ) as server:  # fmt: skip
                verdicts += run_cases(VLLM_CASES, {"vllm": server.port}, collected, delays, pairs, options.seed)
        else:
            print("vLLM is not measured: needs --vllm DIR")
    figures: dict[str, Figure] = {
        "right_of": sum(verdict.right for verdict in verdicts) / len(verdicts),
        "spill_max": max(verdict.spill_ms / verdict.injected_ms for verdict in verdicts),
    }
    report("injected", options.seed, figures)


if __name__ == "__main__":
    main()
