"""Does explained mean right? A known delay at one place of a real vLLM must be found in its stage, and nowhere else.

Each case is 100 pairs of the same request, one with and one without the delay, in turn; a case is right when the median
growth of the stage that should grow is that of the delay within 10 %, and no other grows by more than 2 % of it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from collected import Collected, JudgedRequest, collecting, judged
from harness import Figure, arguments, report, workspace
from vllm_server import Answer, Server, call, serving, words

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


CASES = (
    Case("tokenizer", 120, "tokenize"),
    Case("tokenizer", 300, "tokenize"),
    Case("auth", 120, "auth"),
    Case("auth", 300, "auth"),
    Case("loop_arrival", 120, "net_in"),
    Case("loop_arrival", 300, "net_in"),
    Case("loop_return", 120, "engine_return"),
    Case("loop_return", 300, "engine_return"),
    Case("schedule", 120, "queue"),
    Case("schedule", 300, "queue"),
    Case("execute_prefill", 120, "prefill"),
    Case("execute_prefill", 300, "prefill"),
    Case("execute_decode", 120, "decode"),
    Case("execute_decode", 300, "decode"),
    Case("reader", 1500, "stream_out", reader=True),
)


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


async def run_case(server: Server, collected: Collected, delays: Path, case: Case, pairs: int, seed: int) -> Verdict:
    """Sends the pairs, waits for their spans, compares them."""
    rng = random.Random(seed)
    switch = delays / case.delay
    sent: list[tuple[str, bool]] = []
    tokens = 60 if case.reader else 4
    for pair in range(pairs):
        text = words(rng, 12)
        for on in ((True, False), (False, True))[pair % 2]:
            switch.write_text(str(case.milliseconds if on and not case.reader else 0))
            body: dict[str, object] = {
                "model": "tiny", "prompt": text, "max_tokens": tokens, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }  # fmt: skip
            trace_id = f"{rng.getrandbits(128):032x}"
            answer = await _call(server.port, body, trace_id, case.milliseconds / 1e3 if case.reader and on else 0.0)
            if answer.status != 200:
                raise RuntimeError(f"{case.delay}: status {answer.status}")
            sent.append((trace_id, on))
    switch.write_text("0")
    found = await _judged(collected, [trace_id for trace_id, _ in sent])
    with_delay = [found[trace_id] for trace_id, on in sent if on]
    without = [found[trace_id] for trace_id, on in sent if not on]
    return compare(case, with_delay, without)


async def _call(port: int, body: dict[str, object], trace_id: str, read_after_s: float) -> Answer:
    return await call(port, "/v1/completions", body, read_after_s=read_after_s, trace_id=trace_id, small=True)


async def _judged(collected: Collected, trace_ids: list[str]) -> dict[str, JudgedRequest]:
    deadline = time.monotonic() + 20
    while True:
        found = {request.trace_id: request for request in judged(list(collected.bodies), "/v1/")}
        complete = [trace_id for trace_id in trace_ids if trace_id in found and "prefill" in found[trace_id].stages_ms]
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


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vllm", type=Path, help="folder with a vLLM installation and a model (docs/vllm.md)")
    parser.add_argument("--pairs", type=int, default=100)
    options = parser.parse_args()
    figures: dict[str, Figure] = {"right_of": None, "spill_max": None}
    if options.vllm is None:
        print("not measured: needs --vllm DIR")
        report("injected", options.seed, figures)
        return
    pairs = 5 if options.quick else options.pairs
    with workspace(options.work) as work, collecting() as collected:
        delays = work / "delays"
        delays.mkdir(exist_ok=True)
        (delays / "small_buffers").write_text("1")
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collected.endpoint,
            "PYTHONPATH": str(INJECTION),
            "TAILTRACE_BENCH_DELAYS": str(delays),
        }
        prefix = ("tailtrace", "run", "--")
        middleware = ("--middleware", "slow_auth.KeyAuthMiddleware")
        with serving(
            options.vllm, work / "injected.log", prefix=prefix, environ=environ, arguments=middleware
        ) as server:
            verdicts = []
            warm = Case("none", 1, "prefill")
            asyncio.run(run_case(server, collected, delays, warm, 5, options.seed))
            for number, case in enumerate(CASES):
                collected.bodies.clear()
                verdict = asyncio.run(run_case(server, collected, delays, case, pairs, options.seed + number))
                verdicts.append(verdict)
                print(
                    f"  {case.delay:16s} {verdict.injected_ms:7.1f} ms  {case.stage:14s} grew {verdict.grown_ms:7.1f}"
                    f"  most elsewhere {verdict.spill_ms:5.1f} ({verdict.spill_stage})"
                    f"  {'right' if verdict.right else 'WRONG'}",
                    flush=True,
                )
    figures["right_of"] = sum(verdict.right for verdict in verdicts) / len(verdicts)
    figures["spill_max"] = max(verdict.spill_ms / verdict.injected_ms for verdict in verdicts)
    report("injected", options.seed, figures)


if __name__ == "__main__":
    main()
