"""Compare, slow versus rest, what-if, replicas, batch curve, tokens: on stored requests whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries import (
    Change,
    Selection,
    batch_curve,
    compare,
    parse_filters,
    replicas,
    slow_versus_rest,
    to_json,
    tokens,
    whatif,
)
from tailtrace.analytics.queries.window import MINUTE_NS, Window
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

MS = 1_000_000
SINCE = T0 // MINUTE_NS * MINUTE_NS
UNTIL = SINCE + 60 * MINUTE_NS
WINDOW = Window(SINCE, UNTIL, "1m", MINUTE_NS)
ALL = Selection("api", SINCE, UNTIL)
STEP = 10 * MS


def engine_rows(
    n: int = 1200, *, slow_replica: float = 1.0, decode: float = 1.0, first: int = 0
) -> list[dict[str, Any]]:
    """Two replicas that never queue: 20 ms of prefill, 10 ms a token (times `decode`, and more on `b`)."""
    generator = np.random.default_rng(5)
    rows = []
    for k in range(n):
        out = int(generator.integers(10, 100))
        replica = "ab"[k % 2]
        spent = int(out * STEP * decode * (slow_replica if replica == "b" else 1.0))
        rows.append(
            request(
                first + k, duration_ns=20 * MS + spent, end_ns=T0 + k * SECOND, PrefillNs=20 * MS, DecodeNs=spent,
                TtftNs=20 * MS, PrefillTtftNs=20 * MS, TpotNs=spent // (out - 1), InputTokens=100, OutputTokens=out,
                CachedTokens=0, Replica=replica, MaxBatch=8, Gaps=f"{round(np.log(STEP) / np.log(1.02))}:{out - 1}",
                Tenant=f"t{k % 3}",
            )
        )  # fmt: skip
    return rows


def test_a_version_that_decodes_slower(store: Store) -> None:
    insert_requests(store, [{**row, "Version": "1"} for row in engine_rows(900)])
    insert_requests(store, [{**row, "Version": "2"} for row in engine_rows(900, decode=1.5, first=5000)])
    a, b = (Selection("api", SINCE, UNTIL, {"version": version}) for version in "12")
    found = compare(store, a, b)
    assert [condition.name for condition in found.conditions] == ["version"]
    assert (found.a.n, found.b.n) == (900, 900)
    assert found.common_a > 0.99
    for change in found.changes:
        traffic = sum(term.change_ns for term in change.traffic)
        assert traffic + change.within_ns == change.change_ns == change.b_ns - change.a_ns
        assert sum(stage.change_ns for stage in change.stages) == change.within_ns
    median = found.changes[0]
    assert median.stages[0].name == "decode"
    assert median.stages[0].low_ns > 0
    assert median.within_ns == pytest.approx(0.5 * (median.a_ns - 20 * MS), rel=0.02)
    assert abs(sum(term.change_ns for term in median.traffic)) < 0.1 * median.change_ns


def test_nothing_on_one_side_is_no_change(store: Store) -> None:
    insert_requests(store, engine_rows(50))
    found = compare(store, ALL, Selection("api", UNTIL, UNTIL + MINUTE_NS))
    assert (found.b.n, found.strata, found.changes, found.conditions) == (0, 0, [], [])


def test_slow_requests_are_those_of_the_slow_replica(store: Store) -> None:
    insert_requests(store, engine_rows(slow_replica=3.0))
    found = slow_versus_rest(store, ALL, q=0.9)
    assert found.slow + found.rest == 1200
    assert found.stages[0].stage == "decode"
    assert sum(stage.extra_ns for stage in found.stages) == found.extra_ns
    assert {(each.name, each.value) for each in found.attributes[:3]} >= {("replica", "b"), ("output_tokens", "")}
    assert not any(each.clear for each in found.attributes if each.name == "tenant")


def test_too_few_slow_ones_say_so(store: Store) -> None:
    insert_requests(store, engine_rows(100))
    found = slow_versus_rest(store, ALL, q=0.95)
    assert (found.stages, found.attributes) == ([], [])
    assert found.reason == f"{found.slow} slow and {found.rest} other requests; 20 of each are needed"


def test_nothing_changed_predicts_what_was_seen(store: Store) -> None:
    insert_requests(store, engine_rows())
    found = whatif(store, ALL, Change())
    assert (found.method, found.replicas_now, found.fitted_to, found.stable) == ("replay", 2, "requests", True)
    assert all(each.predicted_ns == each.now_ns == each.retime_ns for each in found.predictions)


def test_a_faster_decode_and_a_gone_stage(store: Store) -> None:
    insert_requests(
        store, [{**row, "AuthNs": 5 * MS, "DurationNs": row["DurationNs"] + 5 * MS} for row in engine_rows()]
    )
    found = whatif(store, ALL, Change(stages={"decode": 0.5, "auth": 0.0}))
    median = found.predictions[0]
    assert median.predicted_ns == pytest.approx((median.now_ns - 25 * MS) / 2 + 20 * MS, rel=0.03)
    assert {mean.stage: mean.predicted_ns for mean in found.means}["auth"] == 0


def test_more_arrivals_wait_and_more_replicas_help(store: Store) -> None:
    insert_requests(store, engine_rows())
    load = whatif(store, ALL, Change()).load_now
    assert load is not None
    busier = whatif(store, ALL, Change(rate=1.3 / load))
    assert busier.stable is False
    tail = busier.predictions[1]
    assert tail.predicted_ns > 2 * tail.now_ns
    assert tail.retime_ns == tail.now_ns
    helped = whatif(store, ALL, Change(rate=1.3 / load, replicas=4))
    assert helped.predictions[1].predicted_ns < tail.predicted_ns / 2


def test_a_replica_helps_from_when_it_is_ready(store: Store) -> None:
    insert_requests(store, engine_rows())
    load = whatif(store, ALL, Change()).load_now
    assert load is not None
    rate = 1.3 / load

    def tail(**change: Any) -> int:
        return whatif(store, ALL, Change(rate=rate, **change)).predictions[1].predicted_ns

    at_once, halfway, never = (tail(replicas=4, startup_s=after) for after in (0, 0.5 * 1200 / rate, 80_000))
    assert at_once < halfway <= never
    assert never == pytest.approx(tail(), rel=0.03)


def test_without_engines_only_the_path_is_retimed(store: Store) -> None:
    insert_requests(store, [request(k, duration_ns=100 * MS, AuthNs=40 * MS, end_ns=T0 + k) for k in range(300)])
    found = whatif(store, ALL, Change(stages={"auth": 0.5}))
    assert (found.method, found.reason) == ("retime", "fewer than 100 requests have a replica, tokens and a prefill")
    assert found.predictions[0].predicted_ns == 80 * MS


@pytest.mark.parametrize(
    "change", [Change(stages={"thinking": 1}), Change(stages={"queue": -1}), Change(rate=0), Change(replicas=10**6)]
)
def test_what_cannot_be_supposed(store: Store, change: Change) -> None:
    with pytest.raises(Rejected):
        whatif(store, ALL, change)


def test_replicas_by_work(store: Store) -> None:
    rows = engine_rows()
    for row in rows:
        if row["Replica"] == "b":
            row["OutputTokens"] *= 3
            row["DecodeNs"] *= 3
            row["DurationNs"] = row["DecodeNs"] + 20 * MS
    insert_requests(store, rows)
    found = replicas(store, ALL)
    assert found.imbalance_by_requests == 1
    assert found.imbalance is not None
    assert 1.3 < found.imbalance < 1.6
    assert [each.replica for each in found.replicas] == ["b", "a"]
    assert sum(each.work_share for each in found.replicas) == pytest.approx(1)
    assert found.capacity is not None


def insert_steps(store: Store, count: int = 400) -> None:
    values = [
        f"(fromUnixTimestamp64Nano({T0 + k * SECOND}), {int((20 + 2 * (1 + k % 12)) * MS)}, 'e', 'api', 'a',"
        f" {1 + k % 12}, {k % 2}, 0, {1 + k % 12})"
        for k in range(count)
    ]
    store.command(
        "INSERT INTO engine_steps (Time, DurationNs, EngineId, Service, Replica, Running, Waiting, PrefillTokens,"
        f" DecodeTokens) VALUES {', '.join(values)}"
    )


def test_the_knee_is_where_sequences_cost_as_much_as_the_step(store: Store) -> None:
    insert_steps(store)
    found = batch_curve(store, WINDOW, "api")
    assert (found.fixed_ns, found.per_sequence_ns, found.knee) == (20 * MS, 2 * MS, 10)
    assert found.points[3].tokens_per_second == pytest.approx(4 / 0.028)
    assert found.most_tokens_per_second == pytest.approx(500)
    assert found.limited == 0.5
    none = batch_curve(store, WINDOW, "nobody")
    assert (none.points, none.knee, none.reason) == ([], None, "no engine steps in this range")


def test_first_token_against_later_ones(store: Store) -> None:
    insert_requests(store, engine_rows())
    found = tokens(store, WINDOW, "api")
    assert (found.with_first_token, found.slower_half, found.stalled) == (1200, "later", 0)
    assert [part.stage for part in found.ttft[0].stages] == ["prefill", "unexplained"]
    assert found.gaps[0].value_ns == pytest.approx(STEP, rel=0.02)
    assert tokens(store, WINDOW, "nobody").slower_half is None


@pytest.mark.parametrize("gaps", ["", "x", "1:2:3", "900:-4", "9" * 30 + ":1", ",,,", "1:" + "9" * 40])
def test_gaps_from_outside_are_inert(store: Store, gaps: str) -> None:
    insert_requests(store, [request(1, duration_ns=SECOND, TtftNs=1, Gaps=gaps, Stalls=gaps)])
    assert to_json(tokens(store, WINDOW, "api"))


def test_answers_of_nothing_are_json(store: Store) -> None:
    for answer in (
        compare(store, ALL, ALL), slow_versus_rest(store, ALL), whatif(store, ALL, Change()), replicas(store, ALL),
        tokens(store, WINDOW, "api"), batch_curve(store, WINDOW, "api"),
    ):  # fmt: skip
        assert b'"since_unix_ns"' in to_json(answer)


def test_filters_are_names_and_values() -> None:
    assert parse_filters(["model=a=b", "tenant="]) == {"model": "a=b", "tenant": ""}
    for wrong in ("model", "nothing=1", "Model) OR 1=1 --=x"):
        with pytest.raises(Rejected):
            parse_filters([wrong])
