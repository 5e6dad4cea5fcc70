"""Every counter there is: name, unit, what it means, which call it comes from, over what window, and when it is absent.

The one list that sampler, lab, analytics and docs/counters.md share. A metric that is not listed here cannot be sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["gauge", "sum"]
Room = Literal["gpu", "link", "host", "service", "sampler"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A `sum` is cumulative since the start that each point carries, never since the driver's load."""

    name: str
    unit: str
    kind: Kind
    room: Room
    meaning: str
    source: str
    window: str
    since: str
    absent: str
    attributes: tuple[str, ...] = ()


_EVERY: Final = "every driver"
_TICK: Final = "fast tick (250 ms)"
_NOW: Final = "instant"
_CUMULATIVE: Final = "cumulative, read each fast tick; sent when it grew, else each second"
_PACED: Final = "cumulative, read each fast tick, sent each second: its rate is sent each tick"
_LINUX: Final = "Linux"
_OLD: Final = "older driver"
_GPM_SINCE: Final = "Hopper, driver 520"
_GPM_ABSENT: Final = "Ampere and older, vGPU, no permission"
_PROCESS: Final = ("process.pid", "process.executable.name")
_THREAD: Final = (*_PROCESS, "thread.id", "thread.name")
_DIRECTION: Final = "network.io.direction"


def _gpu(
    name: str, unit: str, kind: Kind, meaning: str, source: str, window: str, since: str, absent: str, *more: str
) -> Metric:
    return Metric(name, unit, kind, "gpu", meaning, source, window, since, absent, ("hw.id", "hw.type", *more))


def _gpm(name: str, number: int, meaning: str) -> Metric:
    source = f"GPM {number} (nvmlGpmMetricsGet)"
    return _gpu(name, "1", "gauge", meaning, source, "between two samples >= 100 ms apart", _GPM_SINCE, _GPM_ABSENT)


def _link(
    name: str, unit: str, kind: Kind, meaning: str, source: str, window: str, since: str, absent: str, *more: str
) -> Metric:
    attributes = ("hw.id", "hw.type", "tailtrace.link", *more)
    return Metric(name, unit, kind, "link", meaning, source, window, since, absent, attributes)


def _host(
    name: str, unit: str, kind: Kind, meaning: str, source: str, absent: str, *more: str, window: str = "1 s tier"
) -> Metric:
    return Metric(name, unit, kind, "host", meaning, source, window, _LINUX, absent, more)


def _service(name: str, unit: str, kind: Kind, meaning: str, source: str, *more: str) -> Metric:
    return Metric(name, unit, kind, "service", meaning, source, "1 s", _LINUX, "probe not started", more)


def _own(name: str, unit: str, kind: Kind, meaning: str, source: str, *more: str) -> Metric:
    return Metric(name, unit, kind, "sampler", meaning, source, "10 s", "always", "never", more)


METRICS: Final[tuple[Metric, ...]] = (
    _gpu("hw.gpu.utilization", "1", "gauge",
         "share of the driver's last period in which any kernel ran; not SM utilisation",
         "nvmlDeviceGetUtilizationRates .gpu each 2 s; without GPM nvmlDeviceGetSamples(GPU_UTILIZATION), every "
         "reading that the driver kept (tailtrace.source: rates, samples)",
         "driver's period, 1/6 to 1 s", "Fermi; samples: Kepler, driver 340", "MIG on; some vGPU", "tailtrace.source"),
    _gpu("tailtrace.gpu.memory_busy", "1", "gauge",
         "share of that period in which device memory was read or written; time, not bandwidth",
         "nvmlDeviceGetUtilizationRates .memory each 2 s; without GPM nvmlDeviceGetSamples(MEMORY_UTILIZATION)",
         "driver's period, 1/6 to 1 s", "Fermi; samples: Kepler, driver 340", "MIG on; some vGPU", "tailtrace.source"),
    _gpu("hw.gpu.memory.usage", "By", "gauge", "device memory in use, without what the driver reserves",
         "nvmlDeviceGetMemoryInfo v2 .used; v1 on drivers before 510 and where v2 is not supported (some vGPU): then "
         "the reserve is included and tailtrace.gpu.memory.reserved is absent",
         _NOW, "driver 510; v1 before", "integrated GPUs; parent of MIG without permission"),
    _gpu("hw.gpu.memory.limit", "By", "gauge", "device memory there is",
         "nvmlDeviceGetMemoryInfo .total", _NOW, _EVERY, "as hw.gpu.memory.usage"),
    _gpu("hw.gpu.memory.utilization", "1", "gauge", "usage / limit",
         "nvmlDeviceGetMemoryInfo", _NOW, _EVERY, "as hw.gpu.memory.usage"),
    _gpu("tailtrace.gpu.memory.reserved", "By", "gauge", "device memory held by the driver and firmware",
         "nvmlDeviceGetMemoryInfo v2 .reserved", _NOW, "driver 510", _OLD),
    _gpu("hw.power", "W", "gauge", "board power",
         "field 186 POWER_INSTANT; nvmlDeviceGetPowerUsage where that is unknown (tailtrace.source says which)",
         "instant; PowerUsage: 1 s average on Ampere and later", "field: driver 535", "vGPU", "tailtrace.source"),
    _gpu("tailtrace.gpu.power.limit", "W", "gauge", "enforced power limit",
         "nvmlDeviceGetEnforcedPowerLimit", _NOW, "Kepler", "vGPU"),
    _gpu("hw.energy", "J", "sum", "energy used", "field 83 TOTAL_ENERGY_CONSUMPTION", _CUMULATIVE, "Volta",
         "older GPU; vGPU; after a driver reload it starts anew"),
    _gpu("hw.temperature", "Cel", "gauge", "temperature of the GPU",
         "nvmlDeviceGetTemperatureV; nvmlDeviceGetTemperature on older drivers", _NOW, _EVERY, "vGPU"),
    _gpu("tailtrace.gpu.memory.temperature", "Cel", "gauge", "temperature of the memory",
         "field 82 MEMORY_TEMP", _NOW, "boards with HBM", "boards without the sensor"),
    _gpu("tailtrace.gpu.clock.sm", "Hz", "gauge", "clock of the SMs",
         "nvmlDeviceGetClockInfo(SM)", _NOW, _EVERY, "vGPU"),
    _gpu("tailtrace.gpu.clock.memory", "Hz", "gauge", "clock of the memory",
         "nvmlDeviceGetClockInfo(MEM)", _NOW, _EVERY, "vGPU"),
    _gpu("tailtrace.gpu.clock.sm.max", "Hz", "gauge", "highest clock of the SMs",
         "nvmlDeviceGetMaxClockInfo(SM)", "30 s tier", _EVERY, "vGPU"),
    _gpu("tailtrace.gpu.throttle", "ns", "sum", "time spent with clocks cut, by reason",
         "fields 74, 76 and, from driver 580, 269, 270, 271", _CUMULATIVE,
         "74, 76: every driver; others: driver 580", _OLD + "; vGPU", "tailtrace.reason"),
    _gpu("tailtrace.gpu.clock_events", "1", "gauge",
         "bits of the reasons that hold now: 1 idle, 2 application clocks, 4 power cap, 8 hardware slowdown, "
         "16 sync boost, 32 software thermal, 64 hardware thermal, 128 power brake; idle and application clocks "
         "are no throttling",
         "nvmlDeviceGetCurrentClocksEventReasons (before driver 535: ...ThrottleReasons)", _NOW, _EVERY, "vGPU"),
    _gpm("tailtrace.gpu.graphics_active", 1, "share of time the compute engine had work"),
    _gpm("tailtrace.gpu.sm_active", 2, "share of time an SM had a warp, mean over SMs; waiting on memory counts"),
    _gpm("tailtrace.gpu.sm_occupancy", 3, "resident warps / the most there can be"),
    _gpm("tailtrace.gpu.tensor_active", 5, "share of time the tensor cores worked"),
    _gpm("tailtrace.gpu.dram_active", 10, "share of the memory's peak bandwidth; about 0.8 is the practical ceiling"),
    _gpu("hw.errors", "{error}", "sum", "errors: ecc_corrected, ecc_uncorrected, xid (tailtrace.xid has the code)",
         "nvmlDeviceGetTotalEccErrors (volatile); nvmlEventSetWait", "30 s tier; XID at once",
         "ECC: boards with ECC", "no ECC; XID: no permission, not Linux", "error.type", "tailtrace.xid"),
    _gpu("tailtrace.gpu.remapped_rows", "{row}", "gauge", "memory rows remapped, by cause",
         "nvmlDeviceGetRemappedRows", "30 s tier", "Ampere", "older GPU", "tailtrace.reason"),
    _gpu("hw.status", "1", "gauge", "1 for the state that holds: ok, or failed with tailtrace.reason",
         "result of the calls", "30 s tier, and at each change", _EVERY, "never", "hw.state", "hw.name", "hw.vendor",
         "hw.driver_version", "hw.parent", "tailtrace.virtualization", "tailtrace.reason"),
    _gpu("tailtrace.gpu.processes", "{process}", "gauge",
         "compute processes, inside this PID namespace or outside it; several: every value is the whole GPU's",
         "nvmlDeviceGetComputeRunningProcesses", "30 s tier", _EVERY, "vGPU; hidden by the container",
         "tailtrace.namespace"),
    _gpu("tailtrace.gpu.process.memory", "By", "gauge", "device memory of one process of this PID namespace",
         "nvmlDeviceGetComputeRunningProcesses .usedGpuMemory, pid matched through NSpid", "30 s tier", _EVERY,
         "process outside the namespace", *_PROCESS),
    _link("tailtrace.link.io", "By", "sum",
          "payload bytes; transmit leaves the GPU, receive arrives at it (weights, KV restore: PCIe receive)",
          "PCIe: fields 197, 198; NVLink: fields 138, 139 over all links; InfiniBand: sysfs port_*_data x 4",
          _PACED, "PCIe: driver 555; NVLink: driver 450", _OLD + "; no NVLink; vGPU", _DIRECTION, "hw.parent"),
    _link("tailtrace.link.raw_io", "By", "sum", "bytes over NVLink, protocol included",
          "fields 140, 141 over all links", _CUMULATIVE, "driver 450", "no NVLink", _DIRECTION),
    _link("tailtrace.link.bandwidth", "By/s", "gauge", "bytes a second, by the counter's own time stamps",
          "from tailtrace.link.io; else GPM 20, 21, 60, 61; else nvmlDeviceGetPcieThroughput in a thread "
          "(tailtrace.source: field, gpm, throughput)",
          "fast tick; throughput: 20 ms every 2 s", "Maxwell", "vGPU; first sample; implausible value",
          _DIRECTION, "tailtrace.source"),
    _link("tailtrace.link.limit", "By/s", "gauge", "what the link can carry in one direction",
          "PCIe: highest generation x width; NVLink: active links x field 164", "30 s tier", "Fermi", "vGPU"),
    _link("tailtrace.link.generation", "1", "gauge", "PCIe generation, current and highest; idle GPUs go down",
          "nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetMaxPcieLinkGeneration", "2 s tier", "Fermi", "vGPU",
          "tailtrace.state"),
    _link("tailtrace.link.width", "1", "gauge", "PCIe lanes, current and highest",
          "nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth", "2 s tier", "Fermi", "vGPU",
          "tailtrace.state"),
    _link("tailtrace.link.replays", "{replay}", "sum", "PCIe replays; more than 8 a minute is an unhealthy link",
          "nvmlDeviceGetPcieReplayCounter", "2 s tier", "Kepler", "vGPU"),
    _link("tailtrace.link.active", "{link}", "gauge", "NVLinks that are up",
          "nvmlDeviceGetNvLinkState of each of field 91's links", "30 s tier", "Pascal", "no NVLink"),
    _host("tailtrace.host.process.cpu", "ns", "sum", "CPU time of a watched process, all threads",
          "/proc/PID/task/*/schedstat, first number", "no such process; hidepid; gVisor", *_PROCESS),
    _host("tailtrace.host.process.run_queue", "ns", "sum", "time its threads were runnable but had no CPU",
          "/proc/PID/task/*/schedstat, second number", "kernel without CONFIG_SCHED_INFO", *_PROCESS),
    _host("tailtrace.host.process.context_switches", "{switch}", "sum",
          "voluntary: it waited (I/O, lock, GIL, CUDA); involuntary: it was preempted",
          "/proc/PID/task/*/status of threads that ran", "hidepid", *_PROCESS, "tailtrace.kind"),
    _host("tailtrace.host.process.page_faults", "{fault}", "sum", "major: read from disk (cold weights); minor",
          "/proc/PID/stat fields 10, 12", "hidepid", *_PROCESS, "tailtrace.kind"),
    _host("tailtrace.host.process.disk", "By", "sum", "bytes it caused to be read from or written to storage",
          "/proc/PID/io", "process of another user", *_PROCESS, "disk.io.direction"),
    _host("tailtrace.host.process.threads", "{thread}", "gauge", "threads it has", "/proc/PID/task", "hidepid",
          *_PROCESS),
    _host("tailtrace.host.thread.cpu", "ns", "sum",
          "CPU time of one thread; only threads that ran or waited >= 1 % of the window are sent, at most 16 a process",
          "/proc/PID/task/TID/schedstat, first number", "quiet thread; as the process", *_THREAD),
    _host("tailtrace.host.thread.run_queue", "ns", "sum", "time that thread was runnable but had no CPU",
          "/proc/PID/task/TID/schedstat, second number", "quiet thread; as the process", *_THREAD),
    _host("tailtrace.host.pressure", "ns", "sum",
          "time in which some (or all: full) tasks waited for the resource; host-wide, context and never proof",
          "/proc/pressure/{cpu,io,memory}, and {cpu,io,memory}.pressure of the cgroup", "kernel without PSI (psi=1)",
          "tailtrace.resource", "tailtrace.kind", "tailtrace.scope"),
    _host("tailtrace.host.cgroup.throttled", "ns", "sum",
          "time the cgroup was out of its CPU quota: the sampler's own group, and with tailtrace.cgroup those of "
          "watched processes",
          "cpu.stat throttled_usec (v2) or throttled_time (v1)", "no cgroup mounted", "tailtrace.cgroup"),
    _host("tailtrace.host.cgroup.periods", "{period}", "sum", "quota periods: all, and those throttled",
          "cpu.stat nr_periods, nr_throttled", "no cgroup mounted", "tailtrace.kind", "tailtrace.cgroup"),
    _host("tailtrace.host.cgroup.cpu_limit", "{cpu}", "gauge", "CPUs the quota allows",
          "cpu.max (v2) or cpu.cfs_quota_us / cpu.cfs_period_us (v1)", "no quota set", "tailtrace.cgroup"),
    _host("tailtrace.host.tcp.retransmits", "{segment}", "sum", "TCP segments sent again, of this network namespace",
          "/proc/net/snmp Tcp RetransSegs", "gVisor"),
    _host("tailtrace.host.tcp.segments", "{segment}", "sum", "TCP segments sent",
          "/proc/net/snmp Tcp OutSegs", "gVisor"),
    _host("tailtrace.host.tcp.timeouts", "{timeout}", "sum", "retransmission timers that ran out",
          "/proc/net/netstat TcpExt TCPTimeouts", "gVisor"),
    _host("tailtrace.host.tcp.listen_drops", "{connection}", "sum", "connections refused by a full accept queue",
          "/proc/net/netstat TcpExt ListenDrops (ListenOverflows within)", "gVisor"),
    _host("tailtrace.host.network.io", "By", "sum", "bytes of all interfaces but loopback",
          "/proc/net/dev", "gVisor", _DIRECTION),
    _host("tailtrace.host.network.errors", "{packet}", "sum", "packets lost at an interface: error, drop",
          "/proc/net/dev", "gVisor", _DIRECTION, "tailtrace.kind"),
    _host("tailtrace.host.disk.io", "By", "sum", "bytes of a whole disk",
          "/proc/diskstats sectors x 512", "no disks visible", "system.device", "disk.io.direction"),
    _host("tailtrace.host.disk.busy", "ns", "sum", "time the disk had a request in work",
          "/proc/diskstats field 13", "no disks visible", "system.device"),
    _host("tailtrace.host.page_faults", "{fault}", "sum", "major page faults of the host",
          "/proc/vmstat pgmajfault", "gVisor", "tailtrace.kind"),
    _service("tailtrace.host.loop.lag", "s", "gauge", "how late the event loop ran a due callback",
             "call_later every 10 ms", "tailtrace.stat"),
    _service("tailtrace.host.loop.probe_late", "s", "gauge", "how late a thread that only sleeps got the interpreter",
             "sleep of 50 ms in a thread", "tailtrace.stat"),
    _service("tailtrace.host.loop.probe_run_queue", "s", "gauge", "how much of that lateness was waiting for a CPU",
             "its schedstat, second number", "tailtrace.stat"),
    _service("tailtrace.host.loop.cpu", "1", "gauge", "share of the window the loop's thread ran, or was runnable",
             "schedstat of the loop's thread", "tailtrace.kind"),
    _service("tailtrace.host.loop.lost", "ns", "sum",
             "time the loop was late, split by cause: cpu_starved, gil, loop_cpu, loop_blocked",
             "decision tree of instrumentation/loop_verdict.py", "tailtrace.cause"),
    _own("tailtrace.absent", "1", "gauge", "1: this metric cannot be read, and why; sent once an hour and at a change",
         "error of its call", "tailtrace.metric", "tailtrace.reason", "hw.id"),
    _own("tailtrace.sampler.call.duration", "s", "gauge", "95th percentile of a call's own time; over 5 ms: made rarer",
         "perf_counter around each call", "tailtrace.call"),
    _own("tailtrace.sampler.calls", "{call}", "sum", "calls made", "count", "tailtrace.call"),
    _own("tailtrace.sampler.cpu", "s", "sum", "CPU time of the sampler's process", "process_time"),
    _own("tailtrace.sampler.interval", "s", "gauge", "mean time between two fast ticks, as it really was", "monotonic"),
    _own("tailtrace.sampler.dropped", "1", "sum", "values not sent: implausible, reset, full, refused",
         "count", "tailtrace.reason"),
)  # fmt: skip

BY_NAME: Final[dict[str, Metric]] = {metric.name: metric for metric in METRICS}
"""Each metric under its name."""
