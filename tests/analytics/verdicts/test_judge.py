"""One window against another: each cause told from those that look like it, and unknown where evidence is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import GPUS, HOST, MS, SECOND, SINCE, UNTIL, counters, requests, slow, steps, window

from tailtrace.analytics.verdicts.excess import exceeding, excess, stage_grown
from tailtrace.analytics.verdicts.judge import Judgement, confidence, judge_request, judge_window
from tailtrace.analytics.verdicts.observed import STAGE_INDEX, Counters, Observed, Requests, Startup, Steps
from tailtrace.analytics.verdicts.shared_gpu import strangers

BEFORE = window(during=False)


def judged(**changes: object) -> Judgement:
    return judge_window(BEFORE, window(during=True, **changes))  # type: ignore[arg-type]


def headline(found: Judgement) -> tuple[str, str]:
    assert found.verdict is not None
    return found.verdict.cause, found.verdict.confidence


def empty_steps() -> Steps:
    return steps(SINCE, UNTIL).where(np.zeros(400, np.bool_))


def test_the_same_traffic_served_the_same_way_gets_no_verdict() -> None:
    found = judged()
    assert found.verdict is None
    assert list(found.parts) == []


def test_too_few_requests_are_compared_with_nothing() -> None:
    found = judge_window(BEFORE, window(during=True, rows=requests(SINCE, UNTIL, 5, extra_ms={"auth": 900})))
    assert (found.whole, found.first, found.verdict) == (None, None, None)


@pytest.mark.parametrize(
    ("stage", "cause"),
    [
        ("auth", "auth_dependency"), ("rate_limit", "limiter"), ("external", "external_dependency"),
        ("dispatch", "upstream"), ("kv_transfer", "kv_handover"), ("batch_wait", "batch_forming"),
    ],
)  # fmt: skip
def test_stages_that_speak_for_themselves(stage: str, cause: str) -> None:
    found = judged(rows=slow(extra_ms={stage: 900}))
    assert headline(found) == (cause, "high")
    assert found.verdict is not None
    assert found.verdict.share > 0.95
    assert found.verdict.evidence[0].metric == f"{stage} ms a request"
    assert found.verdict.evidence[0].value == pytest.approx(900, rel=0.1)


@pytest.mark.parametrize(
    ("counter", "value", "cause"),
    [
        ("tailtrace_host_loop_lost__host__loop_blocked", 0.3, "loop_blocked"),
        ("tailtrace_host_loop_lost__host__loop_cpu", 0.4, "loop_cpu"),
        ("tailtrace_host_loop_lost__host__cpu_starved", 0.3, "cpu_starved"),
        ("tailtrace_host_loop_lost__host__gil", 0.3, "gil"),
        ("tailtrace_host_cgroup_throttled__host", 0.3, "cpu_quota"),
    ],
)
def test_five_host_faults_in_one_stage_are_told_apart_by_counters(counter: str, value: float, cause: str) -> None:
    found = judged(rows=slow(extra_ms={"engine_submit": 120}), read=counters(**{counter: value}))
    assert headline(found) == (cause, "high")
    assert found.view == "first"


def test_a_quota_of_the_services_own_cgroup_counts_beside_the_samplers() -> None:
    of_service = {("tailtrace.host.cgroup.throttled", HOST, "/system.slice/engine.service"): 0.3}
    read = Counters({**counters().readings, **of_service}, 1.0)
    assert headline(judged(rows=slow(extra_ms={"engine_submit": 120}), read=read)) == ("cpu_quota", "high")


def test_without_counters_a_slow_cpu_stage_stays_unknown_and_says_what_is_missing() -> None:
    found = judged(rows=slow(extra_ms={"engine_submit": 120}), read=Counters())
    assert headline(found) == ("unknown", "low")
    assert found.verdict is not None
    assert "no counters of the host" in found.verdict.reason
    assert found.verdict.missing == ["GPU counters", "host counters"]


def test_a_clock_cut_on_every_rank_is_throttling_on_one_a_straggler() -> None:
    slower = {"rows": slow(extra_ms={"decode": 2400}), "engine": steps(SINCE, UNTIL, slower=1.6)}
    both = {f"tailtrace_gpu_throttle__GPU_{gpu}__hw_thermal": 0.9 for gpu in ("a0", "a1", "b0", "b1")}
    assert headline(judged(**slower, read=counters(**both))) == ("throttled", "high")
    one = {f"tailtrace_gpu_throttle__GPU_{gpu}__hw_thermal": 0.9 for gpu in ("a0", "b0")}
    assert headline(judged(**slower, read=counters(**one))) == ("straggler_rank", "high")


def test_a_power_cap_alone_is_no_throttling() -> None:
    reading = {("tailtrace.gpu.throttle", gpu, "sw_power_cap"): 0.9 for group in GPUS.values() for gpu in group}
    read = Counters({**counters().readings, **reading}, 1.0)
    found = judged(rows=slow(extra_ms={"decode": 2400}), engine=steps(SINCE, UNTIL, slower=1.6), read=read)
    assert headline(found) == ("decode_memory", "high")


def test_steps_that_are_slower_are_bound_by_memory_launches_or_unknown_without_gpm() -> None:
    rows = slow(extra_ms={"decode": 2400})
    engine = steps(SINCE, UNTIL, slower=1.6)
    assert headline(judged(rows=rows, engine=engine)) == ("decode_memory", "high")
    launched = steps(SINCE, UNTIL, slower=1.6, gpu_share=0.6)
    assert headline(judged(rows=rows, engine=launched)) == ("launch_bound", "high")
    bare = Counters({key: value for key, value in counters().readings.items() if "_active" not in key[0]}, 1.0)
    found = judged(rows=rows, engine=engine, read=bare)
    assert headline(found) == ("unknown", "low")
    assert "GPM counters (SM, tensor, memory activity)" in found.missing


def beside(read: Counters, *, inside: float, outside: float) -> Counters:
    """The counters with processes on every GPU: of the sampler's own namespace, and of others."""
    counts = {"inside": inside, "outside": outside}
    processes = {
        ("tailtrace.gpu.processes", gpu, namespace): count
        for group in GPUS.values()
        for gpu in group
        for namespace, count in counts.items()
    }
    return Counters({**read.readings, **processes}, 1.0)


def test_what_counters_of_a_gpu_shared_with_a_stranger_say_is_not_the_services_own() -> None:
    """A neighbour that came, one that was always there, and none: only then is memory bandwidth ours."""
    slower = {"rows": slow(extra_ms={"decode": 2400}), "engine": steps(SINCE, UNTIL, slower=1.6)}
    shared = window(during=True, read=beside(counters(), inside=1, outside=1), **slower)  # type: ignore[arg-type]
    for usual in (beside(counters(), inside=1, outside=0), beside(counters(), inside=1, outside=1), counters()):
        found = judge_window(window(during=False, read=usual), shared)
        assert headline(found) == ("unknown", "low")
        assert found.verdict is not None
        assert found.verdict.reason.startswith("the GPU is shared with another process")
        assert [(one.metric, one.value) for one in found.verdict.evidence] == [("other processes on the GPU", 1.0)]
        assert found.missing == ["counters of this service alone: its GPU is shared with another process"]
    alone = beside(counters(), inside=1, outside=0)
    assert headline(judge_window(window(during=False, read=alone), window(during=True, read=alone, **slower))) == (  # type: ignore[arg-type]
        "decode_memory", "high",
    )  # fmt: skip


def test_a_shared_gpu_whose_clock_is_cut_is_slow_for_everybody() -> None:
    cut = counters(**{f"tailtrace_gpu_throttle__GPU_{gpu}__hw_thermal": 0.9 for gpu in ("a0", "a1", "b0", "b1")})
    read = beside(cut, inside=2, outside=0)
    found = judged(rows=slow(extra_ms={"decode": 2400}), engine=steps(SINCE, UNTIL, slower=1.6), read=read)
    assert headline(found) == ("throttled", "high")


def test_links_of_a_shared_gpu_are_not_ours_either() -> None:
    full = {f"tailtrace_link_bandwidth__GPU_{gpu}__pcie_receive": 55e9 for gpu in ("a0", "a1", "b0", "b1")}
    loading = slow(extra_ms={"kv_load": 900.0})
    assert headline(judged(rows=loading, read=counters(**full))) == ("pcie", "high")
    found = judged(rows=loading, read=beside(counters(**full), inside=1, outside=2))
    assert headline(found) == ("unknown", "low")


def test_a_second_replica_on_a_gpu_is_no_stranger() -> None:
    """Also where it served nothing in the window itself."""
    both = {"replica-0": ("GPU-a0",), "replica-1": ("GPU-a0",)}
    read = beside(counters(), inside=2, outside=0)
    before = replace(window(during=False, read=read), gpus=both)
    during = replace(window(during=True, read=read), gpus={"replica-0": ("GPU-a0",)})
    assert strangers(before, during, ("GPU-a0",)) == ()
    (proof,) = strangers(before, replace(during, counters=beside(counters(), inside=2, outside=1)), ("GPU-a0",))
    assert proof.value == 1.0
    # A window in which nobody counted is taken to be as the reference was.
    crowded = replace(before, counters=beside(counters(), inside=3, outside=0))
    assert len(strangers(crowded, replace(during, counters=counters()), ("GPU-a0",))) == 1
    assert strangers(before, replace(during, counters=counters()), ("GPU-a0",)) == ()


def test_heavier_traffic_is_not_a_slower_service() -> None:
    assert headline(judged(rows=slow(tokens=(1000, 400)))) == ("longer_output", "high")
    assert headline(judged(rows=slow(tokens=(3000, 200)))) == ("longer_input", "high")
    assert headline(judged(rows=slow(tokens=(3000, 90)))) == ("traffic_changed", "high")


def test_a_queue_has_a_reason() -> None:
    queued = {"queue": 3000.0}
    rush = requests(SINCE, UNTIL, 1800, seed=1, extra_ms=queued)
    assert headline(judged(rows=rush)) == ("capacity", "high")
    full = steps(SINCE, UNTIL, waiting=3, capacity=3, kv_usage=0.97)
    assert headline(judged(rows=slow(extra_ms=queued), engine=full)) == ("kv_full", "high")
    assert headline(judged(rows=slow(extra_ms=queued, replica=0))) == ("uneven_replicas", "high")
    found = judged(rows=slow(extra_ms=queued))
    assert headline(found) == ("unknown", "low")


def test_a_start_up_explains_a_queue_unless_the_gpu_reported_a_fault() -> None:
    start = (Startup("replica-1", SINCE, SINCE + 180 * SECOND),)
    rows = slow(extra_ms={"queue": 3000})
    assert headline(judged(rows=rows, startups=start)) == ("cold_start", "high")
    read = Counters({**counters().readings, ("hw.errors", "GPU-b0", "xid"): 0.001}, 1.0)
    assert headline(judged(rows=rows, startups=start, read=read)) == ("gpu_fault", "high")


def test_a_distant_client_a_slow_one_and_a_lossy_line() -> None:
    late = {"stream_out": 3000.0}
    assert headline(judged(rows=slow(extra_ms=late, rtt_ms=200))) == ("client_link", "high")
    assert headline(judged(rows=slow(extra_ms=late))) == ("slow_reader", "high")
    lossy = counters(tailtrace_host_tcp_retransmits__host=40.0)
    assert headline(judged(rows=slow(extra_ms=late), read=lossy)) == ("retransmits", "high")


def test_two_causes_share_the_excess() -> None:
    found = judged(rows=slow(extra_ms={"auth": 600, "external": 1200}))
    assert headline(found) == ("external_dependency", "high")
    assert found.verdict is not None
    (other,) = found.verdict.alternatives
    assert other.cause == "auth_dependency"
    assert other.share == pytest.approx(1 / 3, abs=0.03)


def test_an_hour_of_unstaged_time_is_unknown() -> None:
    found = judged(rows=slow(extra_ms={"unexplained": 2000}))
    assert headline(found) == ("unknown", "low")


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(STAGE_INDEX)), st.floats(0, 5000), max_size=6), st.booleans())
def test_parts_of_a_stage_sum_to_its_excess_and_none_is_negative(extra: dict[str, float], counted: bool) -> None:
    found = judged(rows=slow(extra_ms=extra), read=counters() if counted else Counters())
    chosen = found.whole if found.view == "whole" else found.first
    assert chosen is not None
    for stage, index in STAGE_INDEX.items():
        parts = [part.ns for part in found.parts if part.stage == stage]
        if parts:
            assert min(parts) >= 0
            assert sum(parts) == pytest.approx(float(chosen.grown[index]), rel=1e-9)
    if found.verdict is not None:
        shares = [found.verdict.share, *(one.share for one in found.verdict.alternatives)]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1 + 1e-9


def test_high_needs_strong_evidence_and_half_of_the_excess() -> None:
    assert confidence("throttled", 0.95, 0.6) == "high"
    assert confidence("throttled", 0.95, 0.4) == "medium"
    assert confidence("tokenizer_thread", 0.6, 1.0) == "medium"
    assert confidence("capacity", 0.2, 1.0) == "low"
    assert confidence("unknown", 1.0, 1.0) == "low"


def test_a_service_of_which_nothing_is_known_breaks_nothing() -> None:
    bare = Observed(SINCE, UNTIL, requests(SINCE, UNTIL, 0), empty_steps(), Counters())
    found = judge_window(bare, bare)
    assert found.verdict is None
    assert found.missing == ["engine steps", "GPU counters", "host counters"]
    assert MS == SECOND // 1000


def unlike(count: int, **changes: object) -> Requests:
    """Every other request long: blocks of time differ, so the mean's error is large."""
    rows = slow(**changes)
    queue = STAGE_INDEX["queue"]
    rng = np.random.default_rng(3)
    waits = np.where(rng.random(len(rows)) < 0.3, 400.0 * MS, 0.0) * rng.pareto(1.1, len(rows))
    rows.whole[:, queue] += waits
    rows.first[:, queue] += waits
    return rows.where(np.arange(len(rows)) < count)


def test_a_rise_that_many_share_is_seen_where_a_few_huge_ones_blur_the_mean() -> None:
    rows = unlike(600)
    usual = (BEFORE.requests.start_ns.astype(np.float64), BEFORE.requests.whole)
    now = (rows.start_ns.astype(np.float64), rows.whole)
    assert exceeding(usual, now)[STAGE_INDEX["queue"]] > 4
    same = requests(SINCE, UNTIL, 600, seed=4)
    assert np.abs(exceeding(usual, (same.start_ns.astype(np.float64), same.whole))).max() < 4
    found = excess(BEFORE.requests, rows, "whole")
    assert found is not None
    assert stage_grown(found, "queue") > 0


@pytest.mark.parametrize(
    ("kv_usage", "decode_ms", "cause"),
    [(0.95, 6000.0, "prefill_interference"), (0.95, 0.0, "head_of_line"), (0.7, 6000.0, "head_of_line")],
)
def test_behind_large_prompts_memory_is_full_or_there_was_room(kv_usage: float, decode_ms: float, cause: str) -> None:
    rows = slow(extra_ms={"queue": 9000.0, "decode": decode_ms})
    rows.input_tokens[::4] *= 8
    full = steps(SINCE, UNTIL, waiting=3, capacity=3, kv_usage=kv_usage)
    found = judged(rows=rows, engine=full)
    assert max((part for part in found.parts if part.stage == "queue"), key=lambda part: part.ns).cause == cause


def test_one_request_is_held_against_its_like_and_its_own_replica() -> None:
    usual = requests(BEFORE.since_ns, BEFORE.until_ns, 600)
    # Half of what the gateway saw was embedded at once, and is nothing to compare an answer with.
    for stage in ("prefill", "decode"):
        usual.whole[::2, STAGE_INDEX[stage]] = 0
    usual.whole[::2, STAGE_INDEX["forward"]] = 20 * MS
    one = requests(SINCE, UNTIL, 2, tokens=(1000, 200), extra_ms={"decode": 3000.0}, replica=1).where(
        np.array([False, True])
    )
    engine = steps(SINCE, UNTIL)
    slower = np.where(engine.replica == 1, 1.6, 1.0)
    around = window(
        during=True, engine=replace(engine, duration_ns=engine.duration_ns * slower, gpu_ns=engine.gpu_ns * slower)
    )
    before = window(during=False, rows=usual)
    found = judge_request(before, replace(around, requests=one), around)
    assert found.whole is not None
    assert found.whole.before == pytest.approx(4135 * MS, rel=0.05)
    assert found.rules.slow.slower["decode"] == pytest.approx(1.6, rel=0.05)
    assert found.verdict is not None
    assert found.verdict.cause == "decode_memory"


def test_arrivals_around_one_request_are_no_proof() -> None:
    crowd = requests(SINCE, UNTIL, 1800, seed=1)
    one = slow(extra_ms={"decode": 9000.0}).where(np.arange(600) == 7)
    around = window(during=True, rows=crowd)
    assert headline(judge_request(BEFORE, replace(around, requests=one), around)) == ("unknown", "low")
    queued = slow(extra_ms={"queue": 9000.0}).where(np.arange(600) == 7)
    assert headline(judge_request(BEFORE, replace(around, requests=queued), around)) == ("capacity", "medium")
    batch = slow(extra_ms={"batch_wait": 9000.0}).where(np.arange(600) == 7)
    assert headline(judge_request(BEFORE, replace(around, requests=batch), around)) == ("batch_forming", "high")


@pytest.mark.parametrize(("kv_usage", "confidence"), [(0.97, "high"), (0.7, "medium")])
def test_one_request_that_waited_for_memory_says_so_in_a_rush_too(kv_usage: float, confidence: str) -> None:
    crowd = requests(SINCE, UNTIL, 1800, seed=1)
    one = slow(extra_ms={"queue": 9000.0}).where(np.arange(600) == 7)
    around = window(during=True, rows=crowd, engine=steps(SINCE, UNTIL, waiting=3, capacity=3, kv_usage=kv_usage))
    assert headline(judge_request(BEFORE, replace(around, requests=one), around)) == ("kv_full", confidence)
