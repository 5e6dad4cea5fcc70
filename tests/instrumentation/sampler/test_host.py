"""The host on files of /proc as they look, and on the real /proc of this process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host import cgroup
from tailtrace.instrumentation.sampler.host.disks import Disks
from tailtrace.instrumentation.sampler.host.network import Network
from tailtrace.instrumentation.sampler.host.pids import chosen, inner_pid, parents
from tailtrace.instrumentation.sampler.host.pressure import Pressure
from tailtrace.instrumentation.sampler.host.processes import Process

S = 1_000_000_000


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def second(part: Any, change: Any) -> dict[tuple[Any, ...], float]:
    """Two looks with a change between; values of the second by name and sorted attribute values."""
    part.tick(S, [])
    change()
    points: list[Any] = []
    part.tick(2 * S, points)
    return {(p.name.removeprefix("tailtrace.host."), *sorted(map(str, p.attributes.values()))): p.value for p in points}


def test_pressure_totals_in_nanoseconds_without_the_host_wide_full_of_cpu(tmp_path: Path) -> None:
    def say(some: int, full: int) -> None:
        for resource in ("cpu", "io"):
            text = f"some avg10=1.00 avg60=2.00 avg300=3.00 total={some}\nfull avg10=0 avg60=0 avg300=0 total={full}\n"
            write(tmp_path / "pressure" / resource, text)

    say(100, 10)
    absences = Absences()
    found = second(Pressure(absences, tmp_path, None), lambda: say(350, 15))
    assert found == {
        ("pressure", "cpu", "host", "some"): 250_000,
        ("pressure", "host", "io", "some"): 250_000,
        ("pressure", "full", "host", "io"): 5_000,
    }
    assert absences.reasons() == {"tailtrace.host.pressure/host/memory": "no_psi"}


def test_quota_of_cgroup_v2(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/pod/app\n")
    group = tmp_path / "cg/pod/app"
    write(group / "cgroup.controllers", "cpu")
    write(group / "cpu.max", "150000 100000\n")
    write(group / "cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 2\nthrottled_usec 300\n")
    place = cgroup.find("cpu", tmp_path / "proc", tmp_path / "cg")
    assert place == (group, 2)
    changed = "usage_usec 5\nnr_periods 20\nnr_throttled 5\nthrottled_usec 700\n"
    found = second(cgroup.CpuQuota(Absences(), place), lambda: write(group / "cpu.stat", changed))
    assert found == {
        ("cgroup.throttled",): 400_000,
        ("cgroup.periods", "all"): 10,
        ("cgroup.periods", "throttled"): 3,
        ("cgroup.cpu_limit",): 1.5,
    }


def test_quota_of_cgroup_v1_whose_path_is_outside_the_mount(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n0::/\n")
    group = tmp_path / "cg/cpu,cpuacct"
    write(group / "cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 1000\n")
    write(group / "cpu.cfs_quota_us", "-1\n")
    write(group / "cpu.cfs_period_us", "100000\n")
    place = cgroup.find("cpu", tmp_path / "proc", tmp_path / "cg")
    assert place == (group, 1)
    absences = Absences()
    changed = "nr_periods 1\nnr_throttled 1\nthrottled_time 4000\n"
    found = second(cgroup.CpuQuota(absences, place), lambda: write(group / "cpu.stat", changed))
    assert found["cgroup.throttled",] == 3000
    assert absences.reasons() == {"tailtrace.host.cgroup.cpu_limit": "no_quota"}


def test_the_quota_of_a_service_in_another_cgroup_is_read_while_it_lives(tmp_path: Path) -> None:
    mounted, proc = tmp_path / "cg", tmp_path / "proc"
    for pid, group in ((7, "/system.slice/vllm.service"), (8, "/own"), (9, "/../outside")):
        write(proc / str(pid) / "cgroup", f"0::{group}\n")
    for group in ("system.slice/vllm.service", "own", "."):
        write(mounted / group / "cgroup.controllers", "cpu")
        write(mounted / group / "cpu.stat", "nr_periods 10\nnr_throttled 2\nthrottled_usec 300\n")
    stat = mounted / "system.slice/vllm.service/cpu.stat"
    absences = Absences()
    quotas = cgroup.ServiceQuotas(absences, (mounted / "own", 2), proc, mounted)
    quotas.watch([7, 8, 9, 10])
    found = second(quotas, lambda: write(stat, "nr_periods 20\nnr_throttled 9\nthrottled_usec 800\n"))
    name = "/system.slice/vllm.service"
    assert found == {
        ("cgroup.throttled", name): 500_000,
        ("cgroup.periods", name, "all"): 10,
        ("cgroup.periods", name, "throttled"): 7,
    }
    assert absences.reasons() == {f"tailtrace.host.cgroup.cpu_limit{name}": "no_quota"}
    quotas.watch([8])
    assert second(quotas, lambda: None) == {}
    assert absences.reasons() == {}


def test_network_leaves_loopback_out(tmp_path: Path) -> None:
    def say(retransmits: int, received: int, dropped: int) -> None:
        write(tmp_path / "net/snmp", f"Tcp: RtoMin OutSegs RetransSegs\nTcp: -1 100 {retransmits}\n")
        write(tmp_path / "net/netstat", "TcpExt: ListenDrops TCPTimeouts\nTcpExt: 0 0\n")
        numbers = f"{received} 1 0 {dropped} 0 0 0 0 50 1 0 0 0 0 0 0"
        write(tmp_path / "net/dev", f"a\nb\n    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n  eth0: {numbers}\n")

    say(1, 1000, 0)
    found = second(Network(Absences(), tmp_path), lambda: say(4, 1800, 2))
    assert found["tcp.retransmits",] == 3
    assert found["tcp.listen_drops",] == 0
    assert found["network.io", "receive"] == 800
    assert found["network.errors", "drop", "receive"] == 2


def test_disks_count_once_and_without_partitions(tmp_path: Path) -> None:
    def say(sectors: int, busy_ms: int, faults: int) -> None:
        line = f"{sectors} 0 0 0 8 0 0 {busy_ms} 0"
        write(tmp_path / "diskstats", f"8 0 sda 1 0 {line}\n8 1 sda1 1 0 {line}\n7 0 loop0 1 0 {line}\n")
        write(tmp_path / "vmstat", f"pgfault 9\npgmajfault {faults}\n")

    say(10, 5, 1)
    found = second(Disks(Absences(), tmp_path), lambda: say(14, 9, 4))
    assert found["disk.io", "read", "sda"] == 4 * 512
    assert found["disk.busy", "sda"] == 4_000_000
    assert found["page_faults", "major"] == 3
    assert not any("sda1" in key or "loop0" in key for key in found)


def test_what_is_not_there_is_absent_with_a_reason(tmp_path: Path) -> None:
    absences, points = Absences(), []
    for part in (Network(absences, tmp_path), Disks(absences, tmp_path), cgroup.CpuQuota(absences, None)):
        part.tick(S, points)
    assert points == []
    assert absences.reasons() == {
        "tailtrace.host.tcp.retransmits": "no_file",
        "tailtrace.host.tcp.segments": "no_file",
        "tailtrace.host.tcp.timeouts": "no_file",
        "tailtrace.host.tcp.listen_drops": "no_file",
        "tailtrace.host.network.io": "no_file",
        "tailtrace.host.disk.io": "no_file",
        "tailtrace.host.page_faults": "no_file",
        "tailtrace.host.cgroup.throttled": "no_cgroup",
    }


def test_a_process_that_works_uses_cpu_and_a_process_that_ended_is_gone() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys\nprint(1, flush=True)\nwhile sys.stdin.readline(): sum(range(3_000_000))\n"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    process = Process(child.pid, Absences())
    found: list[Any] = []
    try:
        assert process.tick(S, [])
        cpu = 0
        for step in range(2, 500):
            child.stdin.write("go\n")
            found = []
            assert process.tick(step * S, found)
            cpu = next(p.value for p in found if p.name == "tailtrace.host.process.cpu")
            if cpu > 0:
                break
        assert cpu > 0
        assert {p.attributes["process.pid"] for p in found} == {child.pid}
    finally:
        child.kill()
        child.wait()
    assert not all(process.tick(step * S, []) for step in range(1000, 1010))


def test_a_parent_is_read_anew_only_where_it_is_gone(tmp_path: Path) -> None:
    for pid, parent in ((7, 1), (8, 7), (9, 7)):
        write(tmp_path / f"{pid}/stat", f"{pid} (a ) b) S {parent} 0 0")
    write(tmp_path / "1/stat", "1 (init) S 0 0 0")
    (tmp_path / "10").mkdir()  # it ended before its stat was read
    known = parents(tmp_path)
    assert known == {1: 0, 7: 1, 8: 7, 9: 7}
    (tmp_path / "9/stat").unlink()
    assert parents(tmp_path, known) == known
    (tmp_path / "7/stat").unlink()
    (tmp_path / "7").rmdir()
    write(tmp_path / "8/stat", "8 (a ) b) S 1 0 0")
    assert parents(tmp_path, known) == {1: 0, 8: 1}


def test_chosen_processes_come_with_their_children_and_never_the_sampler() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input() # some-service-xyz"], stdin=subprocess.PIPE)
    try:
        assert child.pid in chosen([os.getpid()], None)
        assert os.getpid() not in chosen([os.getpid()], re.compile("."))
        assert chosen([], re.compile("some-service-xyz")) == {child.pid}
    finally:
        child.kill()
        child.wait()


def test_a_number_of_another_namespace_is_nobody_here(tmp_path: Path) -> None:
    assert inner_pid(4_000_000) is None
    namespaces = tmp_path / "self/ns/pid"
    write(namespaces, "")
    held, other = tmp_path / "7/fd", tmp_path / "8/fd"
    held.mkdir(parents=True)
    other.mkdir(parents=True)
    (held / "3").symlink_to("/dev/nvidia0")
    (other / "3").symlink_to("/dev/null")
    assert inner_pid(7, tmp_path) == 7
    assert inner_pid(8, tmp_path) is None
