"""Arrivals: who asks, when, and for how much.

Gaps and lengths are those of a real trace (package data, CC-BY-4.0), the rate is the scenario's.
"""

from __future__ import annotations

import csv
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tailtrace.lab.clock import MILLISECOND, SECOND
from tailtrace.lab.constants import Constants, stream
from tailtrace.lab.faults import Faults
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Scenario, Traffic
from tailtrace.lab.service.hardware import DATA

GRID_NS = 5 * SECOND
# The trace of code requests pauses for minutes; stretched to a lower rate such a pause would be hours.
LONGEST_GAP = 30.0
PREFIX_TOKENS = 384


@cache
def excerpt(source: str) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """(gaps as multiples of their mean, input tokens, output tokens) of the consecutive requests of a real trace."""
    with (DATA / f"azure2023_{source}.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))[1:]
    table = np.array(rows, dtype=np.int64)
    gaps = table[:, 0].astype(np.float64)
    gaps = np.minimum(gaps / gaps.mean(), LONGEST_GAP)
    return gaps / gaps.mean(), table[:, 1], table[:, 2]


class Arrivals:
    """Draws the requests of a run before it starts; each purpose has its own random stream."""

    def __init__(
        self, scenario: Scenario, faults: Faults, constants: Constants, *, start_unix_ns: int, seed: int
    ) -> None:
        self._scenario = scenario
        self._faults = faults
        self._constants = constants
        self._start_unix_ns = start_unix_ns
        self._seed = seed

    def draw(self, length_ns: int) -> list[Request]:
        """Every request that arrives in [0, length), in order of arrival."""
        requests: list[Request] = []
        for index, traffic in enumerate(self._scenario.traffic):
            grid = np.arange(0, length_ns + GRID_NS, GRID_NS)
            rate = traffic.rate * self._daily(traffic, grid)
            change = self._faults.values("arrivals", grid, traffic.service)
            requests += self._stream(traffic, f"{index}", grid, rate * np.minimum(change, 1.0), length_ns)
            surge = rate * (change - 1.0)
            if np.any(surge > 0):
                requests += self._stream(traffic, f"{index}/surge", grid, np.maximum(surge, 0.0), length_ns)
        requests.sort(key=lambda request: request.arrival_ns)
        for number, request in enumerate(requests):
            request.number = number
        return requests

    def _daily(self, traffic: Traffic, grid: NDArray[np.int64]) -> NDArray[np.float64]:
        hour = ((self._start_unix_ns + grid) / (3600 * SECOND)) % 24.0
        return np.asarray(1.0 + traffic.daily * np.cos((hour - traffic.peak_hour) * np.pi / 12.0))

    def _times(
        self, generator: Generator, source: str, grid: NDArray[np.int64], rate: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Real gaps in operational time, mapped through the inverse of the cumulative rate."""
        cumulative = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2.0 * (GRID_NS / SECOND))])
        gaps = excerpt(source)[0]
        count = int(cumulative[-1] * 1.5 + 200)
        offset = int(generator.integers(len(gaps)))
        steps = np.take(gaps, np.arange(offset, offset + count), mode="wrap")
        operational = np.cumsum(steps) - steps[0] * generator.random()
        operational = operational[operational < cumulative[-1]]
        return np.asarray(np.interp(operational, cumulative, grid)).astype(np.int64)

    def _stream(
        self, traffic: Traffic, name: str, grid: NDArray[np.int64], rate: NDArray[np.float64], length_ns: int
    ) -> list[Request]:
        service, faults, c = traffic.service, self._faults, self._constants
        times = self._times(stream(self._seed, service, name, "arrivals"), traffic.source, grid, rate)
        times = times[times < length_ns]
        n = len(times)
        draws = {key: stream(self._seed, service, name, key) for key in ("lengths", "client", "gateway", "faults")}
        inputs: NDArray[Any]
        outputs: NDArray[Any]
        inputs, outputs = self._lengths(draws["lengths"], traffic.source, n)
        client, gateway, fault = draws["client"], draws["gateway"], draws["faults"]

        # Lengths under faults: the same request, longer; another tenant's request in its place; a giant in its place.
        other_in, other_out = self._lengths(draws["lengths"], "code" if traffic.source == "conv" else "conv", n)
        mixed = fault.random(n) < faults.values("mix_share", times, service)
        inputs, outputs = np.where(mixed, other_in, inputs), np.where(mixed, other_out, outputs)
        inputs = np.maximum(inputs * traffic.tokens, 8) * faults.values("input_tokens", times, service)
        outputs = np.maximum(outputs * traffic.tokens * faults.values("output_tokens", times, service), 1)
        long = fault.random(n) < faults.values("long_share", times, service)
        inputs = np.where(long, fault.integers(10000, 16000, n), inputs)
        giant = fault.random(n) < faults.values("giant_share", times, service)
        inputs = np.where(giant, fault.integers(14000, 24000, n), inputs).astype(np.int64)

        def spread(median_ms: float, sigma: float = c.spread) -> NDArray[np.float64]:
            return median_ms * MILLISECOND * np.exp(sigma * gateway.standard_normal(n))

        def fault_ms(knob: NDArray[np.float64]) -> NDArray[np.float64]:
            return knob * MILLISECOND * np.exp(0.4 * fault.standard_normal(n))

        regions = np.array([1.0, 1.6, 4.0])[client.choice(3, n, p=[0.6, 0.3, 0.1])]
        link = faults.values("link_ms", times, service) * MILLISECOND
        rtt = c.client_rtt * MILLISECOND * regions * np.exp(0.2 * client.standard_normal(n)) + link
        slow = client.random(n) < faults.values("slow_readers", times, service)
        # A slow reader takes 4 to 10 tokens a second; a bad link some 12 to 20, however fast they are made.
        held = link + faults.values("resend_ms", times, service) * MILLISECOND
        interval = np.where(slow, SECOND / client.uniform(4.0, 10.0, n), np.where(held > 0, held / 2.5, 0))
        cached = client.random(n) < traffic.cached
        kept = client.random(n) < faults.values("cache_hits", times, service)
        prefix = np.where(cached, np.minimum(PREFIX_TOKENS * client.integers(1, 5, n), inputs * 3 // 4), 0)
        patience = np.where(client.random(n) < traffic.abort, client.exponential(6.0, n) * SECOND + SECOND, -1)
        external = (client.random(n) < self._scenario.fleet.retrieval_share).astype(np.float64)
        group = np.where(kept, client.integers(0, 12, n), -1 - np.arange(n))
        streaming = client.random(n) < traffic.streaming
        tenant = client.integers(0, traffic.tenants, n)
        refused = np.where(client.random(n) < traffic.refused, client.choice([401, 429], n), 0)
        own_spread = np.exp(c.spread * gateway.standard_normal(n))
        net_in = spread(c.net_in) + rtt * (inputs // 4000) + 0.5 * link
        auth = spread(c.auth, 0.5) + fault_ms(faults.values("auth_ms", times, service))
        rate_limit = spread(c.rate_limit) + fault_ms(faults.values("limiter_ms", times, service))
        external = external * (spread(c.retrieval, 0.5) + fault_ms(faults.values("external_ms", times, service)))
        route, network = spread(c.route), spread(c.network)
        dispatch = spread(c.dispatch) + fault_ms(faults.values("dispatch_ms", times, service))
        before = [times, inputs, outputs, prefix, group]
        after = [net_in, auth, rate_limit, external, route, dispatch, network, rtt, interval]
        rows = zip(
            *map(_integers, before), streaming.tolist(), _integers(tenant), _integers(patience), _integers(refused),
            own_spread.tolist(), *map(_integers, after), strict=True,
        )  # fmt: skip
        return [Request(0, service, *row) for row in rows]

    @staticmethod
    def _lengths(generator: Generator, source: str, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        _, inputs, outputs = excerpt(source)
        # In random order: the trace itself drifts by a third within an hour, and only what is injected may change.
        rows = generator.integers(0, len(inputs), n)
        return inputs[rows], outputs[rows]


def _integers(column: NDArray[Any]) -> list[int]:
    return cast("list[int]", column.astype(np.int64).tolist())
