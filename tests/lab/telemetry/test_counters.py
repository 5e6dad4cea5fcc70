from __future__ import annotations

from collections import defaultdict

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tailtrace.instrumentation.sampler.catalogue import BY_NAME
from tailtrace.lab import Scenario, history_metrics

END = 1_790_000_000_000_000_000

Series = dict[tuple[str, str], list[tuple[int, float]]]


def series(name: str, hours: float = 1.0) -> tuple[Series, dict[str, str]]:
    """({(metric, GPU): [(seconds from the start, value)]}, {GPU: host and rank})."""
    found: Series = defaultdict(list)
    who = {}
    for body in history_metrics(Scenario.load(name), end_unix_ns=END, hours=hours, seed=3):
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            said = {pair.key: pair.value for pair in resource.resource.attributes}
            assert said["tailtrace.simulated"].bool_value
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in (metric.gauge if metric.HasField("gauge") else metric.sum).data_points:
                        named = {pair.key: pair.value for pair in point.attributes}
                        if "hw.id" not in named or "tailtrace.link" in named:
                            continue
                        gpu = named["hw.id"].string_value
                        who[gpu] = f"{said['host.name'].string_value}/{named['tailtrace.rank'].int_value}"
                        value = point.as_double if point.HasField("as_double") else point.as_int
                        at = (point.time_unix_nano - END) // 10**9 + int(hours * 3600)
                        found[metric.name, gpu].append((at, value))
    return found, who


def mean(points: list[tuple[int, float]], since: int, until: int) -> float:
    values = [value for at, value in points if since < at <= until]
    return sum(values) / len(values)


def test_every_gpu_is_read_in_order_and_shares_are_shares() -> None:
    found, who = series("healthy", hours=0.5)
    assert len(who) == 2 * 4 + 8 + 1
    for (metric, _), points in found.items():
        assert [at for at, _ in points] == list(range(10, 1801, 10))
        if metric.endswith(("utilization", "_active")):
            assert all(0.0 <= value <= 1.0 for _, value in points)
        if metric == "tailtrace.gpu.throttle":
            assert {value for _, value in points} == {0}


def test_throttling_shows_in_clock_and_counter_only_where_and_while_it_is() -> None:
    found, who = series("throttled")
    for gpu, host in who.items():
        hit = host.startswith("llm-chat-0/")
        clock = found["tailtrace.gpu.clock.sm", gpu]
        assert (mean(clock, 1200, 2400) < 0.7 * mean(clock, 0, 1200)) == hit
        assert mean(clock, 2400, 3600) == mean(clock, 0, 1200)
        total = found["tailtrace.gpu.throttle", gpu][-1][1]
        assert total == (pytest.approx(1200 * 10**9) if hit else 0)


def test_a_straggler_is_the_rank_with_the_low_clock_while_its_peers_do_less_work() -> None:
    found, who = series("straggler_rank")
    ranks = {host.split("/")[1]: gpu for gpu, host in who.items() if host.startswith("llm-chat-1/")}
    clocks = {rank: mean(found["tailtrace.gpu.clock.sm", gpu], 1200, 2400) for rank, gpu in ranks.items()}
    assert min(clocks, key=clocks.__getitem__) == "0"
    power = {rank: mean(found["hw.power", gpu], 1200, 2400) for rank, gpu in ranks.items()}
    assert max(power, key=power.__getitem__) == "0"
    busy = {mean(found["hw.gpu.utilization", gpu], 1200, 2400) for gpu in ranks.values()}
    assert len(busy) == 1


def test_a_counter_exists_only_in_the_catalogue_that_the_sampler_shares() -> None:
    names = set()
    for body in history_metrics(Scenario.load("cpu_starved"), end_unix_ns=END, hours=0.2, seed=3):
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            names |= {(m.name, m.unit) for scope in resource.scope_metrics for m in scope.metrics}
    assert {name for name, _ in names} >= {"tailtrace.host.loop.lost", "tailtrace.link.bandwidth", "hw.gpu.utilization"}
    assert all(name in BY_NAME and BY_NAME[name].unit == unit for name, unit in names)


def test_removed_evidence_is_not_sent() -> None:
    assert list(history_metrics(Scenario.load("no_sampler"), end_unix_ns=END, hours=0.2, seed=3)) == []
    found, _ = series("no_gpm", hours=0.2)
    assert "tailtrace.gpu.sm_active" not in {metric for metric, _ in found}
    assert "hw.gpu.utilization" in {metric for metric, _ in found}
