"""Runs the sampler on this machine's real GPUs and says what came, what did not and why, and what it cost.

For docs/hardware.md, unattended: as this user and, where that is root, as nobody; idle and under load. The load is
`--load COMMAND`, or products and copies of matrices where torch sees a GPU. Exit code 1 where a check failed or no GPU
could be read.

    python scripts/gpu_check.py > report.txt
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shlex
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.catalogue import BY_NAME, METRICS
from tailtrace.instrumentation.sampler.fields import ALL_LINKS, number_of
from tailtrace.instrumentation.sampler.nvml import Device, Session, Unavailable, load_pynvml, reason_of
from tailtrace.instrumentation.sampler.sampler import Sampler

Key = tuple[str, tuple[tuple[str, str], ...]]
NOBODY = 65534
FIELDS = (74, 75, 76, 82, 83, 91, 138, 139, 140, 141, 164, 185, 186, 197, 198, 230, 269, 270, 271)
TYPES = {0: "double", 1: "uint", 2: "ulong", 3: "ull", 4: "sll", 5: "int", 6: "ushort"}
LINK_METRICS = {20: "pcie transmit", 21: "pcie receive", 60: "nvlink receive", 61: "nvlink transmit"}
MOVED = {
    "pcie transmit": (197, 1), "pcie receive": (198, 1), "nvlink transmit": (138, 1024), "nvlink receive": (139, 1024),
    "nvlink transmit, raw": (140, 1024), "nvlink receive, raw": (141, 1024),
}  # fmt: skip
LOAD = """
import torch
a = [torch.randn(8192, 8192, device=f"cuda:{i}", dtype=torch.bfloat16) for i in range(torch.cuda.device_count())]
h = torch.empty(1 << 28, pin_memory=True)
d = [torch.empty(1 << 28, device=x.device) for x in a]
while True:
    for x, y in zip(a, d):
        for _ in range(20):
            x @ x
        y.copy_(h, non_blocking=True)
        h.copy_(y, non_blocking=True)
    for x, y in zip(d, d[1:]):
        y.copy_(x, non_blocking=True)
    for x in a:
        torch.cuda.synchronize(x.device)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25.0, help="of the sampler in each pass")
    parser.add_argument("--load", metavar="COMMAND", help="what to keep the GPUs busy with")
    parser.add_argument("--idle", action="store_true", help="no pass under load")
    parser.add_argument("--only-me", action="store_true", help="no pass as nobody")
    parser.add_argument("--pass", dest="inner", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--uid", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        if options.uid is not None:
            become(options.uid)
        return one_pass(options.inner, options.seconds)
    try:
        session = Session()
        devices = session.devices()
    except Unavailable as error:
        print(f"no GPU can be read: {error}")
        return 1
    print(f"date       {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    print(f"driver     {session.driver}, pynvml {getattr(session.api, '__version__', '') or package_version()}")
    print(f"kernel     {os.uname().release}, {os.cpu_count()} CPUs")
    print(f"container  {Path('/.dockerenv').exists() or Path('/run/.containerenv').exists()}")
    for device in devices:
        kind = "instance  " if device.is_instance else "GPU       "
        print(f"{kind} {device.name} {device.uuid} {device.bus_id} {device.virtualization or 'bare metal'}")
    session.close()
    command = None if options.idle else shlex.split(options.load) if options.load else own_load()
    results = []
    for load in (None, command) if command else (None,):
        with working(load):
            for user in (None, NOBODY) if os.geteuid() == 0 and not options.only_me else (None,):
                name = f"{'under load' if load else 'idle'}, {'nobody' if user else 'this user'}"
                results.append((user, as_user(user, name, options.seconds)))
    if not command and not options.idle:
        print("\nno pass under load: give --load COMMAND, or install torch with CUDA")
    # What nobody may not read is a finding; what this user may not is a failure.
    return int(any(code for user, code in results if user is None))


def package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("nvidia-ml-py")
    except PackageNotFoundError:
        return "of unknown version"


def own_load() -> list[str] | None:
    asked = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=False).returncode == 0
    return [sys.executable, "-c", LOAD] if found else None


@contextmanager
def working(command: list[str] | None) -> Iterator[None]:
    """The load, from 10 s before."""
    if command is None:
        yield
        return
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(10)
        if process.poll() is not None:
            print(f"\nthe load ended at once with code {process.returncode}: what follows is idle")
        yield
    finally:
        process.kill()
        process.wait()


def as_user(user: int | None, name: str, seconds: float) -> int:
    sys.stdout.flush()
    command = [sys.executable, __file__, "--pass", name, "--seconds", str(seconds)]
    return subprocess.run([*command, *(["--uid", str(user)] if user else [])], check=False).returncode


def become(user: int) -> None:
    """Another user from here on: only after everything is imported, as that user may not read where it lies."""
    with suppress(Unavailable):
        load_pynvml()
    warm = Sampler(lambda points: None, gpu=False)
    threading.Timer(0.1, warm.stop).start()
    warm.run()
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def one_pass(name: str, seconds: float) -> int:
    print(f"\n== {name} (uid {os.geteuid()})")
    try:
        session = Session()
        devices = session.devices()
    except Unavailable as error:
        print(f"no GPU can be read: {error}")
        return 1
    for device in [one for one in devices if not one.is_instance][:1]:
        show_fields(session.api, device)
        show_costs(session.api, device)
        show_links(session.api, device)
    session.close()

    points: list[Point] = []
    sampler = Sampler(points.extend)
    used, started = time.process_time(), time.monotonic()
    threading.Timer(seconds, sampler.stop).start()
    sampler.run()
    share = (time.process_time() - used) / (time.monotonic() - started)

    series: dict[Key, list[Point]] = defaultdict(list)
    for point in points:
        series[point.name, tuple(sorted((k, str(v)) for k, v in point.attributes.items()))].append(point)
    show_series(series, {device.uuid: sampler.absences.reasons(device.uuid) for device in devices})
    failed = checks(series)
    print(f"\nCPU        {100 * share:.2f} % of a core; dropped {sampler.drops.counts or 'nothing'}")
    for line in failed:
        print(f"FAILED     {line}")
    return 1 if failed else 0


def show_fields(api: Any, device: Device) -> None:
    print("\nfields: type, value, age of its time stamp")
    asked = [(number, ALL_LINKS if number in range(138, 142) else 0) for number in FIELDS]
    for value in api.nvmlDeviceGetFieldValues(device.handle, asked):
        if value.nvmlReturn:
            print(f"  {value.fieldId:4d} {reason_of(value.nvmlReturn)}")
            continue
        bits = int.from_bytes(bytes(value.value), "little")
        age_ms = (time.time_ns() - value.timestamp * 1000) / 1e6
        print(f"  {value.fieldId:4d} {TYPES.get(value.valueType, value.valueType):6s} "
              f"{number_of(value.valueType, bits):<22} {age_ms:.1f} ms")  # fmt: skip


def show_costs(api: Any, device: Device) -> None:
    print("\ncalls: median and 95th percentile of their own time")
    handle, batch = device.handle, [(number, ALL_LINKS if number in range(138, 142) else 0) for number in FIELDS]
    wanted: list[tuple[str, int, Callable[[], Any]]] = [
        (f"{len(batch)} fields", 50, lambda: api.nvmlDeviceGetFieldValues(handle, batch)),
        ("fields 197, 198", 50, lambda: api.nvmlDeviceGetFieldValues(handle, [197, 198])),
        ("field 186", 50, lambda: api.nvmlDeviceGetFieldValues(handle, [186])),
        ("ClockInfo", 50, lambda: api.nvmlDeviceGetClockInfo(handle, 1)),
        ("ClocksEventReasons", 50, lambda: api.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        ("UtilizationRates", 50, lambda: api.nvmlDeviceGetUtilizationRates(handle)),
        ("Samples", 10, lambda: api.nvmlDeviceGetSamples(handle, 1, 0)),
        ("MemoryInfo v2", 50, lambda: api.nvmlDeviceGetMemoryInfo(handle, version=api.nvmlMemory_v2)),
        ("ComputeRunningProcesses", 10, lambda: api.nvmlDeviceGetComputeRunningProcesses(handle)),
        ("PcieThroughput", 5, lambda: api.nvmlDeviceGetPcieThroughput(handle, 0)),
        ("HandleByIndex", 10, lambda: api.nvmlDeviceGetHandleByIndex(0)),
    ]
    for name, times, call in wanted:
        took = []
        try:
            for _ in range(times):
                started = time.perf_counter()
                call()
                took.append(time.perf_counter() - started)
                time.sleep(0.002)
        except (api.NVMLError, AttributeError) as error:
            print(f"  {name:24s} {error}")
            continue
        ordered = sorted(took)
        p95 = ordered[math.ceil(0.95 * times) - 1]
        print(f"  {name:24s} {1e6 * ordered[times // 2]:9.1f} us {1e6 * p95:9.1f} us")


def show_links(api: Any, device: Device) -> None:
    """The same second by fields and by GPM: whether GPM's rates hold the protocol, and who may read it."""
    print("\nbytes a second over one second, by fields and by GPM")
    asked = [(number, ALL_LINKS if number in range(138, 142) else 0) for number, _ in MOVED.values()]
    rates: dict[str, float] = {}
    try:
        older, newer = api.nvmlGpmSampleAlloc(), api.nvmlGpmSampleAlloc()
        api.nvmlGpmSampleGet(device.handle, older)
    except api.NVMLError as error:
        print(f"  GPM: {error}")
        older = None
    before = api.nvmlDeviceGetFieldValues(device.handle, asked)
    time.sleep(1.0)
    after = api.nvmlDeviceGetFieldValues(device.handle, asked)
    for (name, (_, unit)), first, last in zip(MOVED.items(), before, after, strict=True):
        elapsed = last.timestamp - first.timestamp
        if not last.nvmlReturn and not first.nvmlReturn and elapsed > 0:
            one, other = (number_of(v.valueType, int.from_bytes(bytes(v.value), "little")) for v in (first, last))
            rates[f"{name}, fields"] = (other - one) * unit * 1e6 / elapsed
    if older is not None:
        try:
            api.nvmlGpmSampleGet(device.handle, newer)
            query = api.c_nvmlGpmMetricsGet_t()
            query.version, query.numMetrics = api.NVML_GPM_METRICS_GET_VERSION, len(LINK_METRICS)
            query.sample1, query.sample2 = older, newer
            for index, number in enumerate(LINK_METRICS):
                query.metrics[index].metricId = number
            api.nvmlGpmMetricsGet(query)
            for index, name in enumerate(LINK_METRICS.values()):
                if not query.metrics[index].nvmlReturn:
                    rates[f"{name}, GPM"] = query.metrics[index].value * 1048576
        except api.NVMLError as error:
            print(f"  GPM: {error}")
        for sample in (older, newer):
            api.nvmlGpmSampleFree(sample)
    for name, rate in sorted(rates.items()):
        print(f"  {name:32s} {rate:.4g}")


def show_series(series: dict[Key, list[Point]], absent: dict[str, dict[str, str]]) -> None:
    print("\nlast values of the first GPU, and points in all")
    shown = {name for name, _ in series}
    first = next(iter(absent))
    for (name, attributes), values in sorted(series.items()):
        told = dict(attributes)
        if told.get("hw.id", first) == first:
            more = " ".join(f"{k}={v}" for k, v in told.items() if k not in {"hw.id", "hw.type"})
            print(f"  {name:36s} {values[-1].value:<20.6g} {len(values):5d}  {more}")
    print("\nabsent")
    for uuid, reasons in absent.items():
        for metric, reason in sorted(reasons.items()):
            print(f"  {uuid} {metric}: {reason}")
    never = [m.name for m in METRICS if m.room in {"gpu", "link"} and m.name not in shown]
    print("never came: " + (", ".join(never) or "none"))


def checks(series: dict[Key, list[Point]]) -> list[str]:
    """What cannot be right."""
    failed = []
    limits = {
        (dict(a)["hw.id"], dict(a)["tailtrace.link"]): values[-1].value
        for (name, a), values in series.items()
        if name == "tailtrace.link.limit"
    }
    for (name, attributes), values in series.items():
        told = dict(attributes)
        stamps = [point.time_unix_ns for point in values]
        if stamps != sorted(stamps):
            failed.append(f"{name} {told}: time runs backwards")
        if BY_NAME[name].kind == "sum" and any(
            b.value < a.value and b.start_unix_ns == a.start_unix_ns for a, b in itertools.pairwise(values)
        ):
            failed.append(f"{name} {told}: a sum went down")
        if BY_NAME[name].unit == "1" and name.endswith("_active") and any(not 0 <= p.value <= 1 for p in values):
            failed.append(f"{name} {told}: a share outside 0 to 1")
        limit = limits.get((told.get("hw.id", ""), told.get("tailtrace.link", "")))
        if name == "tailtrace.link.bandwidth" and limit and max(p.value for p in values) > limit:
            failed.append(f"{name} {told}: more than the link's {limit:.3g} bytes a second")
    return failed


if __name__ == "__main__":
    sys.exit(main())
