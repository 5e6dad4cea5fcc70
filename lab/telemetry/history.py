"""Made history: a scenario run in virtual time and written as OTLP bodies."""

from __future__ import annotations

from collections.abc import Iterator

from tailtrace.instrumentation.otlp import SpanData, encode_traces
from tailtrace.lab.clock import SECOND
from tailtrace.lab.constants import stream
from tailtrace.lab.scenario import Scenario
from tailtrace.lab.simulation import Simulation
from tailtrace.lab.telemetry.processes import Processes, Resource
from tailtrace.lab.telemetry.spans import SpanWriter
from tailtrace.lab.telemetry.startup import startup_spans
from tailtrace.lab.telemetry.steps import StepSampler

SPANS_PER_BODY = 1900


class Ids:
    """Random bytes, drawn a block at a time; runs at other times, or of other scenarios, never share an id."""

    def __init__(self, seed: int, purpose: str, scenario: str, start_unix_ns: int) -> None:
        self._draw = stream(seed, purpose, scenario, start_unix_ns)
        self._block, self._at = b"", 0

    def __call__(self, n: int) -> bytes:
        if self._at + n > len(self._block):
            self._block, self._at = self._draw.bytes(1 << 16), 0
        self._at += n
        return self._block[self._at - n : self._at]


class Bodies:
    """Collects spans of several processes and scopes; gives a body whenever there is enough for one."""

    def __init__(self, *, backfill: bool = False) -> None:
        self._backfill = backfill
        self._parts: dict[tuple[str, str], tuple[Resource, list[SpanData]]] = {}
        self._count = 0

    def add(self, resource: Resource, spans: list[SpanData], scope: str = "tailtrace") -> bytes | None:
        part = self._parts.get((resource["service.instance.id"], scope))
        if part is None:
            declared = {**resource, "tailtrace.backfill": True} if self._backfill else resource
            part = self._parts[resource["service.instance.id"], scope] = (declared, [])
        part[1].extend(spans)
        self._count += len(spans)
        return self.take() if self._count >= SPANS_PER_BODY else None

    def take(self) -> bytes:
        """Everything collected since the last body, possibly nothing."""
        parts = self._parts.items()
        body = b"".join([encode_traces(resource, spans, scope=scope) for (_, scope), (resource, spans) in parts])
        self._parts.clear()
        self._count = 0
        return body


def history(
    scenario: Scenario, *, end_unix_ns: int, hours: float | None = None, seed: int = 0, steps: bool = True
) -> Iterator[bytes]:
    """OTLP trace bodies of the `hours` before `end_unix_ns`, in order of time, at most about 2,000 spans each.

    The same scenario, end, hours and seed give the same bytes. Requests that have not ended by then are left out, as a
    real exporter would. With `steps`, sampled engine steps are among the bodies (see `StepSampler`).
    """
    length_ns = int((scenario.hours if hours is None else hours) * 3600 * SECOND)
    start_unix_ns = end_unix_ns - length_ns
    kept = steps and scenario.evidence.steps
    sampler = StepSampler(start_unix_ns, length_ns, Ids(seed, "steps", scenario.name, start_unix_ns)) if kept else None
    simulation = Simulation(
        scenario,
        start_unix_ns=start_unix_ns,
        length_ns=length_ns,
        seed=seed,
        on_stretch=sampler.record if sampler else None,
    )
    yield from bodies_of(simulation, seed=seed, sampler=sampler)


def bodies_of(simulation: Simulation, *, seed: int, sampler: StepSampler | None) -> Iterator[bytes]:
    """Run a simulation to its end, giving bodies as its requests end. What they tell is past: they say `backfill`."""
    exporter = Exporter(simulation, seed=seed, sampler=sampler, backfill=True)
    for now_ns in simulation.run():
        yield from exporter.collect(now_ns)
    yield from exporter.rest()


class Exporter:
    """Turns what a simulation has finished into bodies."""

    def __init__(
        self, simulation: Simulation, *, seed: int, sampler: StepSampler | None = None, backfill: bool = False
    ) -> None:
        self._simulation, self._sampler = simulation, sampler
        self._ids = Ids(seed, "ids", simulation.scenario.name, simulation.start_unix_ns)
        self._writer = SpanWriter(simulation.scenario, simulation.constants, simulation.start_unix_ns, self._ids)
        self.processes = Processes(simulation.scenario, simulation.faults, length_ns=simulation.length_ns, seed=seed)
        self._bodies = Bodies(backfill=backfill)

    def collect(self, now_ns: int) -> Iterator[bytes]:
        """Bodies of what ended by now; a last part stays until there is more of it."""
        simulation, processes, bodies = self._simulation, self.processes, self._bodies
        for request in simulation.finished:
            gateway, engine = self._writer.write(request)
            if engine:
                resource = processes.engine(request.service, request.replica, request.engine_start_ns)
                if body := bodies.add(resource, engine):
                    yield body
            if body := bodies.add(processes.gateway(), gateway):
                yield body
        simulation.finished.clear()
        due = [startup for startup in simulation.startups if startup.start_ns + startup.length_ns <= now_ns]
        for startup in due:
            simulation.startups.remove(startup)
            resource = processes.engine(startup.service, startup.replica, startup.start_ns)
            bodies.add(resource, startup_spans(startup, simulation.start_unix_ns, self._ids))
        if self._sampler:
            for (service, replica), spans in self._sampler.take(processes):
                if body := bodies.add(processes.engine(service, replica, now_ns - 1), spans, "tailtrace.steps"):
                    yield body

    def rest(self) -> Iterator[bytes]:
        if body := self._bodies.take():
            yield body
