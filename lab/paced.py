"""A simulation kept in step with the wall clock, its spans posted as they would be: cheap, and any fault works."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

import httpx

from tailtrace.errors import ConfigError
from tailtrace.lab.clock import SECOND
from tailtrace.lab.scenario import Scenario
from tailtrace.lab.simulation import Simulation
from tailtrace.lab.telemetry.history import Exporter, Ids
from tailtrace.lab.telemetry.steps import StepSampler

log = logging.getLogger("tailtrace.lab")

TICK_S = 0.5
CHAPTER_S = 3600.0
_HEADERS = {"content-type": "application/x-protobuf"}


def traces_url(endpoint: str) -> str:
    """The address that spans are posted to. Raises ConfigError when `endpoint` is no http address."""
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise ConfigError(f"endpoint: expected http://host:port, got {endpoint!r}")
    return endpoint if endpoint.rstrip("/").endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"


class PacedLab:
    """Runs a scenario hour after hour; each hour is a run of its own with the next seed, its faults again."""

    def __init__(self, seed: int = 0, headers: dict[str, str] | None = None) -> None:
        self._seed = seed
        self._headers = {**_HEADERS, **(headers or {})}
        self.posted = 0
        self.refused = 0

    def report(self) -> dict[str, int]:
        return {"posted": self.posted, "refused": self.refused}

    async def run(self, endpoint: str, scenario: Scenario, rate: float | None, stop: asyncio.Event) -> None:
        """Until `stop`: posts what ended in each half second. What a receiver does not take is lost, and counted."""
        url = traces_url(endpoint)
        if rate:
            scenario = scenario.scaled(rate)
        async with httpx.AsyncClient(headers=self._headers, timeout=5.0) as client:
            while not stop.is_set():
                await self._chapter(client, url, scenario, stop)
                self._seed += 1

    async def _chapter(self, client: httpx.AsyncClient, url: str, scenario: Scenario, stop: asyncio.Event) -> None:
        length_ns = int(CHAPTER_S * SECOND)
        start_unix_ns, started = time.time_ns(), time.monotonic_ns()
        sampler = StepSampler(start_unix_ns, length_ns, Ids(self._seed, "steps", scenario.name, start_unix_ns))
        simulation = Simulation(
            dataclasses.replace(scenario, hours=CHAPTER_S / 3600), start_unix_ns=start_unix_ns, length_ns=length_ns,
            seed=self._seed, on_stretch=sampler.record,
        )  # fmt: skip
        exporter = Exporter(simulation, seed=self._seed, sampler=sampler)
        now_ns = 0
        while not stop.is_set() and now_ns < length_ns:
            try:
                await asyncio.wait_for(stop.wait(), TICK_S)
            except TimeoutError:
                pass
            now_ns = min(time.monotonic_ns() - started, length_ns)
            simulation.advance(now_ns)
            await self._post(client, url, [*exporter.collect(now_ns), *exporter.rest()])

    async def _post(self, client: httpx.AsyncClient, url: str, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            try:
                answer = await client.post(url, content=body)
                ok = answer.is_success
            except httpx.HTTPError as error:
                log.debug("post: %s", error)
                ok = False
            self.posted += ok
            self.refused += not ok
