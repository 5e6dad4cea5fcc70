"""The live lab: starts the fleet's processes, sends its traffic, ends them."""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import time
from collections import Counter
from multiprocessing.process import BaseProcess

from tailtrace.errors import TailtraceError
from tailtrace.lab.arrivals import Arrivals
from tailtrace.lab.clock import SECOND
from tailtrace.lab.constants import Constants
from tailtrace.lab.faults import Faults
from tailtrace.lab.live.load import LoadGenerator
from tailtrace.lab.live.server import Assignment, serve
from tailtrace.lab.scenario import Scenario

START_S = 30.0
STOP_S = 1.5


class LiveLab:
    """Real servers on loopback ports: one process for the gateway and one for each replica of a language model.

    One-shot services and restarts of replicas exist in virtual time only; their traffic is left out here.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._processes: list[BaseProcess] = []
        self.ended: Counter[str] = Counter()

    def report(self) -> dict[str, int]:
        return dict(self.ended)

    async def run(self, endpoint: str, scenario: Scenario, rate: float | None, stop: asyncio.Event) -> None:
        """Until `stop`: the scenario over and over, each time with new processes and the next seed.

        At another rate than the scenario's its requests are shorter or longer, so that its fleet is as busy as it was.
        """
        scenario = _served(scenario)
        if rate:
            scenario = scenario.scaled(rate, hold_load=True)
        while not stop.is_set():
            try:
                await self._chapter(endpoint, scenario, stop)
            finally:
                await self._end()
            self._seed += 1

    async def _chapter(self, endpoint: str, scenario: Scenario, stop: asyncio.Event) -> None:
        length_ns = int(scenario.hours * 3600 * SECOND)
        backends: dict[str, list[str]] = {}
        starting = [
            (
                service.name,
                asyncio.create_task(self._start(Assignment(scenario, endpoint, self._seed, service.name, index))),
            )
            for service in scenario.fleet.services
            for index in range(service.replicas)
        ]
        for name, task in starting:
            backends.setdefault(name, []).append(f"http://127.0.0.1:{await task}")
        port = await self._start(Assignment(scenario, endpoint, self._seed, backends=backends))
        if stop.is_set():
            return
        constants = Constants.draw(self._seed, scenario.fleet.noise)
        arrivals = Arrivals(
            scenario, Faults(scenario, length_ns), constants, start_unix_ns=time.time_ns(), seed=self._seed
        )
        load = LoadGenerator("127.0.0.1", port)
        try:
            await load.run(arrivals.draw(length_ns), stop)
        finally:
            self.ended.update(load.ended)

    async def _start(self, assignment: Assignment) -> int:
        """Start a server's process; gives its port. Raises TailtraceError when it does not come up."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=serve, args=(assignment, theirs), daemon=True)
        process.start()
        theirs.close()
        self._processes.append(process)
        try:
            if not await asyncio.to_thread(ours.poll, START_S):
                raise EOFError
            return int(ours.recv())
        except EOFError:
            what = assignment.service or assignment.scenario.fleet.gateway
            raise TailtraceError(
                f"the lab's {what} did not start within {START_S:.0f} s; see its output above"
            ) from None
        finally:
            ours.close()

    async def _end(self) -> None:
        """SIGTERM to every server, SIGKILL to what is left after a moment."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + STOP_S
        for process in self._processes:
            await asyncio.to_thread(process.join, max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                await asyncio.to_thread(process.join)
        self._processes.clear()


def _served(scenario: Scenario) -> Scenario:
    """The scenario without what only virtual time can run."""
    services = tuple(service for service in scenario.fleet.services if service.kind == "llm")
    names = {service.name for service in services}
    return dataclasses.replace(
        scenario,
        fleet=dataclasses.replace(scenario.fleet, services=services),
        traffic=tuple(traffic for traffic in scenario.traffic if traffic.service in names),
        faults=tuple(fault for fault in scenario.faults if fault.service in names or not fault.service),
    )
