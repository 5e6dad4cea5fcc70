"""What the samplers of the fleet's hosts would read, made from the steps that ran and the faults that were put in.

Shares of SM, tensor and memory activity are assumptions about prefill (compute bound) and decode (bound by memory
bandwidth), not measurements; busy time, memory, throttling and clocks follow the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tailtrace.instrumentation.otlp import Point, encode_metrics
from tailtrace.lab.clock import SECOND
from tailtrace.lab.faults import Faults
from tailtrace.lab.scenario import Scenario, Service
from tailtrace.lab.service.engine import Stretch
from tailtrace.lab.service.hardware import GPU_CLOCK_HZ, GPU_MEMORY_BYTES, GPU_POWER_W
from tailtrace.lab.simulation import Simulation
from tailtrace.lab.telemetry.host_counters import HostCounters
from tailtrace.lab.telemetry.link_counters import LinkCounters
from tailtrace.lab.telemetry.processes import Processes

RECENT_NS = 3600 * SECOND
RECENT_EVERY_NS = 10 * SECOND
EARLIER_EVERY_NS = 60 * SECOND


@dataclass(slots=True)
class Interval:
    """Time a replica's GPUs spent in an interval, and the fullest its KV cache was."""

    prefill_ns: int = 0
    decode_ns: int = 0
    kv_usage: float = 0.0

    def shares(self, every_ns: int, launching: bool) -> tuple[float, float]:
        """Shares of the interval in which GPUs prefilled and decoded; launches leave them idle in between."""
        prefill, decode = min(1.0, self.prefill_ns / every_ns), min(1.0, self.decode_ns / every_ns)
        return (0.6 * prefill, 0.5 * decode) if launching else (prefill, decode)


class Counters:
    """Collects stretches of steps; `points` gives a replica's readings at the end of an interval."""

    def __init__(self, scenario: Scenario, length_ns: int, recent_every_ns: int = RECENT_EVERY_NS) -> None:
        self._recent_every_ns = recent_every_ns
        self._services = {service.name: service for service in scenario.fleet.services}
        self._recent_ns = max(0, length_ns - RECENT_NS)
        self._intervals: dict[tuple[str, int, int], Interval] = defaultdict(Interval)
        self._throttled_ns: dict[str, int] = defaultdict(int)
        self._gpm = scenario.evidence.gpm
        self._links = LinkCounters()
        self.hosts = HostCounters()

    def every_ns(self, at_ns: int) -> int:
        return self._recent_every_ns if at_ns >= self._recent_ns else EARLIER_EVERY_NS

    def record(self, service: str, replica: int, stretch: Stretch) -> None:
        """Split a stretch over the intervals it covers."""
        at, end = stretch.start_ns, stretch.start_ns + stretch.step_ns * stretch.steps
        oneshot = self._services[service].kind == "oneshot"
        while at < end:
            every = self.every_ns(at)
            upto = min(end, (at // every + 1) * every)
            interval = self._intervals[service, replica, at // every * every]
            if stretch.batch.prefill or oneshot:
                interval.prefill_ns += upto - at
            else:
                interval.decode_ns += upto - at
            interval.kv_usage = max(interval.kv_usage, stretch.kv_usage)
            at = upto

    def points(
        self, simulation: Simulation, service: Service, replica: int, start_ns: int, uuids: list[str]
    ) -> list[Point]:
        """Readings of a replica's host and of each of its GPUs at the end of the interval that starts at `start_ns`."""
        every = self.every_ns(start_ns)
        interval = self._intervals.get((service.name, replica, start_ns)) or Interval()
        faults = simulation.faults
        launching = faults.value("launch_ms", start_ns, service.name, replica) > 0
        made = self.hosts.points(simulation, service, replica, start_ns, every, sum(interval.shares(every, launching)))
        return made + self.gpu_points(faults, simulation.start_unix_ns, service, replica, start_ns, uuids)

    def gpu_points(
        self, faults: Faults, since_unix_ns: int, service: Service, replica: int, start_ns: int, uuids: list[str]
    ) -> list[Point]:
        """Readings of each GPU at the end of the interval; `since_unix_ns`: when the run began, where its time is 0."""
        every = self.every_ns(start_ns)
        interval = self._intervals.pop((service.name, replica, start_ns), None) or Interval()
        value, name = faults.value, service.name
        throttled = value("throttled", start_ns, name, replica) > 0
        straggling = value("straggler", start_ns, name, replica) > 0
        slowdown = value("step_time", start_ns, name, replica)
        launching = value("launch_ms", start_ns, name, replica) > 0
        # Kernels that wait for a link keep an SM busy and move no memory.
        linked = slowdown if value("nvlink_down", start_ns, name, replica) > 0 else 1.0
        loading = value("pcie_share", start_ns, name, replica)
        failed = value("xid", start_ns, name, replica) > 0
        prefill, decode = interval.shares(every, launching)
        at, since = since_unix_ns + start_ns + every, since_unix_ns
        made: list[Point] = []
        for rank, uuid in enumerate(uuids):
            slow = throttled or (straggling and rank == 0)
            # Ranks that wait for a straggler spin: busy by every count but the work they do.
            work = 1.0 / slowdown if straggling and rank else 1.0 / linked
            share = min(1.0, prefill + decode)
            clock = GPU_CLOCK_HZ[service.gpu] / (slowdown if slow else 1.0)
            if slow:
                self._throttled_ns[uuid] += every
            readings = {
                ("hw.gpu.utilization", "1"): share,
                ("hw.gpu.memory.usage", "By"): int(GPU_MEMORY_BYTES * (0.62 + 0.3 * interval.kv_usage)),
                ("hw.gpu.memory.limit", "By"): GPU_MEMORY_BYTES,
                ("hw.gpu.memory.utilization", "1"): 0.62 + 0.3 * interval.kv_usage,
                ("hw.power", "W"): GPU_POWER_W[service.gpu] * (0.18 + (0.75 * prefill + 0.5 * decode) * work),
                ("tailtrace.gpu.power.limit", "W"): GPU_POWER_W[service.gpu],
                ("hw.temperature", "Cel"): 34.0 + 38.0 * share + (16.0 if slow else 0.0),
                ("tailtrace.gpu.clock.sm", "Hz"): clock,
                ("tailtrace.gpu.clock.sm.max", "Hz"): GPU_CLOCK_HZ[service.gpu],
            }
            if self._gpm:
                readings |= {
                    ("tailtrace.gpu.graphics_active", "1"): share,
                    ("tailtrace.gpu.sm_active", "1"): 0.9 * prefill + 0.6 * decode,
                    ("tailtrace.gpu.tensor_active", "1"): (0.62 * prefill + 0.1 * decode) * work,
                    ("tailtrace.gpu.dram_active", "1"): (0.3 * prefill + 0.72 * decode) * work,
                }
            gpu = {"hw.id": uuid, "hw.type": "gpu", "tailtrace.rank": rank}
            made += [Point(metric, unit, "gauge", number, at, gpu) for (metric, unit), number in readings.items()]
            reason = {**gpu, "tailtrace.reason": "hw_thermal"}
            made.append(Point("tailtrace.gpu.throttle", "ns", "sum", self._throttled_ns[uuid], at, reason, since))
            xid = {**gpu, "error.type": "xid", "tailtrace.xid": "79"}
            errors = int(failed and rank == 0)
            made.append(Point("hw.errors", "{error}", "sum", errors, at, xid, since))
            down = value("nvlink_down", start_ns, name, replica) if len(uuids) > 1 else 0.0
            made += self._links.points(gpu, at, since, every, prefill + decode, len(uuids) > 1, down, loading)
        return made


def history_metrics(
    scenario: Scenario, *, end_unix_ns: int, hours: float | None = None, seed: int = 0
) -> Iterator[bytes]:
    """OTLP metric bodies of the run that `history` with the same arguments makes, in order of time.

    One reading of each GPU and host a minute, and every ten seconds in the last hour.
    """
    length_ns = int((scenario.hours if hours is None else hours) * 3600 * SECOND)
    counters = Counters(scenario, length_ns)
    if not scenario.evidence.sampler:
        return
    simulation = Simulation(
        scenario, start_unix_ns=end_unix_ns - length_ns, length_ns=length_ns, seed=seed, on_stretch=counters.record
    )
    processes = Processes(scenario, simulation.faults, length_ns=length_ns, seed=seed)
    at = 0
    # A stretch is known when it ends, up to a minute after its start: readings follow two slices behind.
    for now_ns in [*simulation.run(), length_ns + 3600 * SECOND]:
        simulation.finished.clear()
        bodies: dict[str, tuple[dict[str, object], list[Point]]] = {}
        while at + counters.every_ns(at) <= min(length_ns, now_ns - 120 * SECOND):
            for service in scenario.fleet.services:
                for replica in range(service.replicas):
                    if at < simulation.absent_until.get((service.name, replica), 0):
                        continue
                    resource = processes.engine(service.name, replica, at)
                    uuids = str(resource["tailtrace.gpu_uuids"]).split(",")
                    key = str(resource["service.instance.id"])
                    kept = bodies.setdefault(key, ({**resource, "tailtrace.role": "sampler"}, []))[1]
                    kept += counters.points(simulation, service, replica, at, uuids)
            gateway = processes.gateway()
            kept = bodies.setdefault(
                str(gateway["service.instance.id"]), ({**gateway, "tailtrace.role": "sampler"}, [])
            )[1]
            kept += counters.hosts.gateway_points(simulation, at, counters.every_ns(at))
            at += counters.every_ns(at)
        body = b"".join([encode_metrics(resource, points) for resource, points in bodies.values()])
        if body:
            yield body
