"""What the sampler and the service's own probes would read of a host: threads, quota, network, event loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.lab.clock import SECOND
from tailtrace.lab.effects import Knob
from tailtrace.lab.scenario import Service
from tailtrace.lab.simulation import Simulation

SEGMENTS_PER_S = 900.0
QUIET_RETRANSMITS = 0.0008
LOOP_CAUSES: Final[tuple[Knob, ...]] = ("loop_blocked", "loop_cpu", "cpu_starved", "gil")


class HostCounters:
    """Keeps the cumulative counts of every host."""

    def __init__(self) -> None:
        self._sums: dict[tuple[Any, ...], float] = defaultdict(float)

    def points(
        self, simulation: Simulation, service: Service, replica: int, start_ns: int, every_ns: int, busy: float
    ) -> list[Point]:
        """An engine's host, over the interval from `start_ns`; `busy` is the share in which steps ran."""

        def value(knob: Knob) -> float:
            return simulation.faults.value(knob, start_ns, service.name, replica)

        lost = {cause: min(0.9, value(cause)) for cause in LOOP_CAUSES}
        tokenizing = 0.97 if value("tokenizer_threads") < 1.0 else 0.08
        launching = 0.99 if value("launch_ms") > 0 else 0.15 + 0.25 * min(1.0, busy)
        threads = {"EngineCore": launching, "tokenizer-0": tokenizing}
        host = f"{service.name}/{replica}"
        return self._host(simulation, host, start_ns, every_ns, lost, min(0.9, value("cpu_quota")), 0.0, threads)

    def gateway_points(self, simulation: Simulation, start_ns: int, every_ns: int) -> list[Point]:
        """The gateway's host, where the clients' connections end."""
        services = simulation.scenario.fleet.services
        resent = max(simulation.faults.value("retransmit_share", start_ns, each.name) for each in services)
        lost: dict[Knob, float] = dict.fromkeys(LOOP_CAUSES, 0.0)
        return self._host(simulation, "gateway", start_ns, every_ns, lost, 0.0, resent, {})

    def _host(
        self, simulation: Simulation, host: str, start_ns: int, every_ns: int, lost: Mapping[Knob, float],
        quota: float, resent: float, threads: Mapping[str, float],
    ) -> list[Point]:  # fmt: skip
        since, at = simulation.start_unix_ns, simulation.start_unix_ns + start_ns + every_ns
        made: list[Point] = []

        def count(metric: str, unit: str, more: float, **attributes: Any) -> None:
            named = {key.replace("__", "."): value for key, value in attributes.items()}
            key = (host, metric, *named.values())
            self._sums[key] += more
            made.append(Point(metric, unit, "sum", int(self._sums[key]), at, named, since))

        def gauge(metric: str, unit: str, value: float, **attributes: Any) -> None:
            named = {key.replace("__", "."): value for key, value in attributes.items()}
            made.append(Point(metric, unit, "gauge", value, at, named))

        starved = lost["cpu_starved"]
        running = 0.06 + 1.9 * lost["loop_cpu"]
        seconds = every_ns / SECOND
        count("tailtrace.host.process.cpu", "ns", every_ns * (0.1 + running + sum(threads.values())))
        count("tailtrace.host.process.run_queue", "ns", every_ns * (0.004 + 1.5 * starved))
        for name, share in threads.items():
            count("tailtrace.host.thread.cpu", "ns", every_ns * share, thread__name=name)
        count("tailtrace.host.cgroup.throttled", "ns", every_ns * quota)
        count("tailtrace.host.cgroup.periods", "{period}", 10 * seconds, tailtrace__kind="all")
        count("tailtrace.host.cgroup.periods", "{period}", 10 * seconds * quota, tailtrace__kind="throttled")
        count("tailtrace.host.pressure", "ns", every_ns * min(0.95, 0.03 + 1.6 * starved), tailtrace__resource="cpu",
              tailtrace__kind="some", tailtrace__scope="host")  # fmt: skip
        count("tailtrace.host.tcp.segments", "{segment}", SEGMENTS_PER_S * seconds)
        count("tailtrace.host.tcp.retransmits", "{segment}", SEGMENTS_PER_S * seconds * (QUIET_RETRANSMITS + resent))
        for cause, share in lost.items():
            count("tailtrace.host.loop.lost", "ns", every_ns * (0.002 + share), tailtrace__cause=cause)
        gauge("tailtrace.host.loop.lag", "s", 0.002 + 0.12 * (sum(lost.values()) + quota), tailtrace__stat="p99")
        gauge("tailtrace.host.loop.cpu", "1", min(0.98, running), tailtrace__kind="running")
        return made
