"""How fast and how right the statistics are: a 30-day chart, quantiles, stage shares, and predictions of lab runs.

Shares are compared with those of millions of draws of the same distribution; a prediction is made from one run of the
lab and then that other run is made, at up to 0.9 of what the fleet can do.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from harness import arguments, report, workspace
from lab_runs import run, steady, with_decode

from tailtrace.analytics.queries.attribution import attribution
from tailtrace.analytics.queries.selection import Selection
from tailtrace.analytics.queries.series import series
from tailtrace.analytics.queries.whatif import Change, WhatIf, whatif
from tailtrace.analytics.queries.window import DAY_NS, window_of
from tailtrace.analytics.statistics.euler import Bucket, allocate
from tailtrace.analytics.statistics.percentiles import percentile_of_buckets, rank
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store

REQUESTS = 100_000_000
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
BASE_LOAD, HIGH_LOAD = 0.6, 0.9
# One row a day, combination and bucket; a bell of 280 buckets around 2 s, decode growing with it.
_ROLLUP = """
INSERT INTO rollup_1d (Metric, Service, Route, Model, Version, Outcome, Streaming, IsRoot, Time, K, N, SumNs, QueueNs,
  PrefillNs, DecodeNs, TokenizeNs, NetworkNs, UnexplainedNs)
SELECT metric, 'gateway', concat('/v', toString(combination % 4)), concat('model-', toString(combination % 5)),
  concat('1.', toString(day DIV 10)), if(combination % 20 = 19, 'error', 'ok'), 'true', true,
  toDateTime64(toStartOfDay(fromUnixTimestamp64Nano({end:Int64}, 'UTC')) - INTERVAL day DAY, 0, 'UTC') AS time, 900 + k,
  toInt64(ceil({n:Int64} / 30 / 20 * exp(-pow(k - 140, 2) / 2 / 1600) / 100.27)) AS n,
  n * toInt64(pow(1.02, 899.5 + k)) AS total, toInt64(total * 0.0005 * k), toInt64(total * 0.1), toInt64(total * 0.5),
  toInt64(total * 0.05), toInt64(total * 0.02),
  total - toInt64(total * 0.0005 * k) - toInt64(total * 0.1) - toInt64(total * 0.5) - toInt64(total * 0.05)
    - toInt64(total * 0.02)
FROM (SELECT arrayJoin(['duration', 'ttft', 'tpot']) AS metric, arrayJoin(range(30)) AS day,
  arrayJoin(range(20)) AS combination, arrayJoin(range(280)) AS k)
"""


def chart_ms(store: Store) -> float:
    """Median time of a 30-day chart of percentiles and stages, and the attribution of P95, from the day tier."""
    end = time.time_ns() // DAY_NS * DAY_NS
    store.command(_ROLLUP, {"end": end - 1, "n": REQUESTS})
    window = window_of(end - 30 * DAY_NS, end)
    asked = "SELECT sum(N) AS n FROM rollup_1d WHERE Metric = 'duration'"
    held = int(store.query(asked)[0]["n"])
    times, cpu = [], []
    for _ in range(9):
        started, used = time.perf_counter(), time.process_time()
        series(store, window, "gateway")
        answer = attribution(store, window, "gateway", q=0.95)
        times.append(1000 * (time.perf_counter() - started))
        cpu.append(1000 * (time.process_time() - used))
    rows = store.query("SELECT count() AS n FROM rollup_1d")[0]["n"]
    print(f"  {held:,} requests in {rows:,} rollup rows, {answer.n:,} in the chart: {statistics.median(times):.0f} ms,")
    print(f"    {statistics.median(cpu):.0f} ms of CPU")
    return statistics.median(times)


def quantile_error(seed: int, n: int) -> float:
    """The largest relative error of any quantile of merged buckets, over bodies, gaps and tails."""
    generator = np.random.default_rng(seed)
    body = generator.lognormal(20, 0.7, n)
    shapes = (
        body,
        np.where(generator.random(n) < 0.9, body, 50 * body),
        np.where(generator.random(n) < 0.98, body, 1e9 * (1 + generator.pareto(1.3, n))),
        generator.uniform(1e6, 2e6, n),
    )
    worst = 0.0
    for values in shapes:
        whole = np.sort(values.astype(np.int64))
        merged = Counter[int]()
        for part in np.array_split(values.astype(np.int64), 97):
            merged.update(
                dict(zip(*(x.tolist() for x in np.unique(buckets_of(part), return_counts=True)), strict=True))
            )
        for q in QUANTILES:
            found = percentile_of_buckets(q, sorted(merged.items())).value_ns
            exact = int(whole[rank(q, n) - 1])
            worst = max(worst, abs((found or 0) - exact) / exact)
    return worst


def buckets_of(values: Any) -> Any:
    return np.ceil(np.log(np.maximum(values, 1)) / np.log(1.02)).astype(np.int64)


def draw(generator: np.random.Generator, n: int, spread: float) -> Any:
    """n requests of six stages in ns: lengths drive prefill and decode, a common load drives queue and decode.

    `spread` is the sigma of the queue's logarithm: the larger, the less alike are requests of one duration.
    """
    load, length = generator.standard_normal(n), generator.standard_normal(n)
    own = generator.standard_normal((6, n))
    stages = (
        2e6 * np.exp(0.4 * own[0]),
        6e6 * np.exp(0.5 * own[1] + 0.4 * length),
        np.maximum(0.0, 60e6 * np.exp(spread * (0.92 * load + 0.39 * own[2])) - 20e6),
        90e6 * np.exp(0.3 * own[3] + 0.6 * length),
        700e6 * np.exp(0.5 * own[4] + 0.25 * load),
        15e6 * np.exp(0.8 * own[5]),
    )
    return np.stack(stages, axis=1)


def shares(parts: Any, q: float) -> Any:
    """Stage shares of the q-percentile by way of rollup buckets, as the product has them."""
    total = parts.sum(axis=1)
    kinds, at, n = np.unique(buckets_of(total), return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(at, parts[:, k]) for k in range(parts.shape[1])], axis=1)
    buckets = [Bucket(int(k), int(m), row) for k, m, row in zip(kinds, n, sums.tolist(), strict=True)]
    found = allocate(q, buckets)
    assert found is not None
    return np.array(found.parts_ns) / found.value_ns


def true_shares(seed: int, draws: int, q: float, spread: float) -> Any:
    """E[stage] / E[total] in a narrow band of ranks around q, from many draws."""
    parts = draw(np.random.default_rng([seed, 99]), draws, spread)
    total = parts.sum(axis=1)
    low, high = np.quantile(total, (q - 0.05 * (1 - q), q + 0.05 * (1 - q)))
    near = parts[(total >= low) & (total <= high)]
    return near.sum(axis=0) / near.sum()


def share_errors(seed: int, draws: int, spread: float) -> dict[float, float]:
    """Mean over 20 seeds of the largest share error in percentage points, from 20,000 requests each."""
    found = {}
    for q in (0.95, 0.99):
        truth = true_shares(seed, draws, q, spread)
        errors = [
            100 * float(np.abs(shares(draw(np.random.default_rng([seed, k]), 20_000, spread), q) - truth).max())
            for k in range(20)
        ]
        found[q] = statistics.mean(errors)
        which = f"P{100 * q:g}, queue sigma {spread}"
        print(f"  share error at {which}: mean {found[q]:.2f} pp, worst {max(errors):.2f} pp of 20 seeds")
    return found


def p95(answer: WhatIf) -> Any:
    return next(each for each in answer.predictions if each.metric == "duration" and each.q == 0.95)


def whatif_error(store: Store, folder: Path, seed: int, hours: float) -> float:
    """The largest error of P95 over the predictions of one seed's fleet."""
    first = run(store, folder, steady(1.5), hours=hours, seed=seed)
    known = whatif(store, first, Change()).load_now
    if known is None:
        raise RuntimeError("the replay found nothing to replay")
    low = 1.5 * BASE_LOAD / known
    factor = HIGH_LOAD / BASE_LOAD
    # Each: the run seen, the change, the run predicted. As many requests come in a shorter time where more come.
    cases = (
        ("arrivals to 0.9", (steady(low), hours), Change(rate=factor), (steady(low * factor), hours / factor)),
        ("decode x 1.3", (steady(low), hours), Change(stages={"decode": 1.3}), (with_decode(steady(low), 1.3), hours)),
        ("decode / 1.3", (with_decode(steady(low), 1.3), hours), Change(stages={"decode": 1 / 1.3}),
         (steady(low), hours)),
        ("one replica more at 0.9", (steady(low * factor), hours / factor), Change(replicas=1),
         (steady(low * factor, replicas=3), hours / factor)),
        ("arrivals from 0.9", (steady(low * factor), hours / factor), Change(rate=1 / factor), (steady(low), hours)),
    )  # fmt: skip
    worst = 0.0
    for name, (seen, seen_hours), change, (other, other_hours) in cases:
        predicted = whatif(store, run(store, folder, seen, hours=seen_hours, seed=seed), change)
        selection: Selection = run(store, folder, other, hours=other_hours, seed=seed)
        happened = p95(whatif(store, selection, Change())).now_ns
        guess = p95(predicted)
        error = guess.predicted_ns / happened - 1
        worst = max(worst, abs(error))
        print(
            f"  seed {seed}, {name:24s} P95 {guess.now_ns / 1e9:6.2f} s -> {guess.predicted_ns / 1e9:6.2f} s predicted,"
            f" {happened / 1e9:6.2f} s seen: {error:+.1%} (queue left out: {guess.retime_ns / happened - 1:+.1%})"
        )
    return worst


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    quick = options.quick
    with workspace(options.work) as folder:
        store = open_store(ServerSettings(data=Path(folder) / "analytics"))
        chart = chart_ms(store)
        draws = 3_000_000 if quick else 6_000_000
        errors, heavy = (share_errors(options.seed, draws, spread) for spread in (1.0, 1.3))
        quantiles = quantile_error(options.seed, 100_000 if quick else 2_000_000)
        seeds = range(options.seed, options.seed + (1 if quick else 3))
        predicted = max(whatif_error(store, Path(folder), seed, 0.1 if quick else 0.5) for seed in seeds)
        store.close()
    report(
        "analytics",
        options.seed,
        {
            "chart_30d_ms": chart,
            "quantile_err_max": quantiles,
            "share_err_pp_p95": errors[0.95],
            "share_err_pp_p99": errors[0.99],
            "share_err_pp_p99_heavy": heavy[0.99],
            "whatif_err_p95": predicted,
        },
    )


if __name__ == "__main__":
    main()
