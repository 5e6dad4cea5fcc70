"""CPU, run-queue delay, switches, faults and disk traffic of the watched processes, and of their busy threads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host.files import KeptFile
from tailtrace.instrumentation.sampler.host.pids import PROC, name_of
from tailtrace.instrumentation.sampler.series import Series

BUSY_SHARE: Final = 0.01
MOST_THREADS_SENT: Final = 16
MOST_THREADS_KEPT: Final = 512
_LIST_EVERY: Final = 5


class Thread:
    """One thread: its open files, its last readings, and its switches while it runs."""

    __slots__ = ("cpu_ns", "file", "new_ns", "queue_ns", "sent", "series", "status", "switches", "tid")

    def __init__(self, base: str, tid: int) -> None:
        self.tid = tid
        self.file, self.status = KeptFile(f"{base}/schedstat"), KeptFile(f"{base}/status")
        self.cpu_ns = self.queue_ns = self.new_ns = 0
        self.sent = (0, 0)
        self.series: tuple[Series, Series] | None = None
        self.switches = (0, 0)

    def close(self) -> None:
        self.file.close()
        self.status.close()


class Process:
    """Reads one process; totals count from when it was first seen, threads that ended included."""

    def __init__(self, pid: int, absences: Absences, proc: Path = PROC) -> None:
        self.pid = pid
        self._base = proc / str(pid)
        self._absences = absences
        own = self._attributes = {"process.pid": pid, "process.executable.name": name_of(pid, proc)}
        self._cpu, self._queue = (Series(f"tailtrace.host.process.{name}", own) for name in ("cpu", "run_queue"))
        self._alive = Series("tailtrace.host.process.threads", own)
        self._switched, self._faulted, self._moved = (
            [Series(f"tailtrace.host.process.{name}", {**own, key: kind}) for kind in kinds]
            for name, key, kinds in (
                ("context_switches", "tailtrace.kind", ("voluntary", "involuntary")),
                ("page_faults", "tailtrace.kind", ("minor", "major")),
                ("disk", "disk.io.direction", ("read", "write")),
            )
        )
        self._threads: dict[int, Thread] = {}
        self._stat, self._io = KeptFile(self._base / "stat"), KeptFile(self._base / "io")
        self._first_faults: tuple[int, int] | None = None
        self._first_io: tuple[int, int] | None = None
        self._start_ns = self._last_ns = 0
        self._total_cpu = self._total_queue = 0
        self._switches = [0, 0]
        self._rounds = 0

    def tick(self, unix_ns: int, points: list[Point]) -> bool:
        """Append points; False when the process is gone."""
        if self._rounds % _LIST_EVERY == 0 and not self._list_threads():
            return False
        self._rounds += 1
        window = unix_ns - self._last_ns if self._last_ns else 0
        first = not self._start_ns
        self._start_ns = self._start_ns or unix_ns
        busy = self._read_threads(first)
        self._last_ns = unix_ns
        if not self._threads:
            return False
        if first:
            self._faults(unix_ns, points)
            self._disk(unix_ns, points)
            return True
        start = self._start_ns
        points.append(self._cpu.point(self._total_cpu, unix_ns, start))
        points.append(self._queue.point(self._total_queue, unix_ns, start))
        points.append(self._alive.point(len(self._threads), unix_ns))
        chosen = sorted((t for t in busy if t.new_ns >= BUSY_SHARE * window), key=lambda t: -t.new_ns)
        for thread in chosen[:MOST_THREADS_SENT]:
            self._send_thread(thread, unix_ns, points)
        for thread in chosen:
            self._count_switches(thread)
        for series, count in zip(self._switched, self._switches, strict=True):
            points.append(series.point(count, unix_ns, start))
        self._faults(unix_ns, points)
        self._disk(unix_ns, points)
        return True

    def close(self) -> None:
        for thread in self._threads.values():
            thread.close()
        self._stat.close()
        self._io.close()
        self._threads.clear()

    def _list_threads(self) -> bool:
        try:
            listed = {int(entry) for entry in os.listdir(self._base / "task")}
        except OSError:
            self.close()
            return False
        for tid in self._threads.keys() - listed:
            self._threads.pop(tid).close()
        for tid in sorted(listed - self._threads.keys())[: MOST_THREADS_KEPT - len(self._threads)]:
            self._threads[tid] = Thread(f"{self._base}/task/{tid}", tid)
        return True

    def _read_threads(self, first: bool) -> list[Thread]:
        """Threads that used or wanted a CPU since the last reading."""
        busy, gone = [], []
        for thread in self._threads.values():
            content = thread.file.read()
            if content is None:
                gone.append(thread.tid)
                if thread.file.reason not in {"gone", "no_file"}:
                    self._absences.note("tailtrace.host.process.run_queue", str(thread.file.reason))
                continue
            cpu, queue, _ = map(int, content.split())
            thread.new_ns = cpu - thread.cpu_ns + queue - thread.queue_ns
            if thread.new_ns and not first:
                self._total_cpu += cpu - thread.cpu_ns
                self._total_queue += queue - thread.queue_ns
                busy.append(thread)
            thread.cpu_ns, thread.queue_ns = cpu, queue
        for tid in gone:
            self._threads.pop(tid).close()
        return busy

    def _send_thread(self, thread: Thread, unix_ns: int, points: list[Point]) -> None:
        if thread.series is None:
            # Counted from here on, like every total; what it did before is in the process's.
            thread.sent = (thread.cpu_ns, thread.queue_ns)
            name = name_of(thread.tid, self._base / "task")
            attributes = {**self._attributes, "thread.id": thread.tid, "thread.name": name}
            thread.series = (
                Series("tailtrace.host.thread.cpu", attributes), Series("tailtrace.host.thread.run_queue", attributes),
            )  # fmt: skip
        cpu, queue = thread.series
        points.append(cpu.point(thread.cpu_ns - thread.sent[0], unix_ns, self._start_ns))
        points.append(queue.point(thread.queue_ns - thread.sent[1], unix_ns, self._start_ns))

    def _count_switches(self, thread: Thread) -> None:
        text = thread.status.read()
        at = text.find(b"voluntary_ctxt_switches:") if text is not None else -1
        if text is None or at < 0:
            return
        words = text[at:].split()
        now = (int(words[1]), int(words[3]))
        if thread.switches != (0, 0):
            self._switches[0] += now[0] - thread.switches[0]
            self._switches[1] += now[1] - thread.switches[1]
        thread.switches = now

    def _faults(self, unix_ns: int, points: list[Point]) -> None:
        content = self._stat.read()
        if content is None:
            return
        words = content[content.rindex(b")") + 2 :].split()
        now = (int(words[7]), int(words[9]))
        if self._first_faults is None:
            self._first_faults = now
            return
        for series, count, before in zip(self._faulted, now, self._first_faults, strict=True):
            points.append(series.point(count - before, unix_ns, self._start_ns))

    def _disk(self, unix_ns: int, points: list[Point]) -> None:
        metric = "tailtrace.host.process.disk"
        content = self._io.read()
        if content is None:
            if self._io.reason != "gone":
                self._absences.note(metric, str(self._io.reason))
            return
        values = dict(line.split(b": ") for line in content.splitlines())
        now = (int(values[b"read_bytes"]), int(values[b"write_bytes"]))
        if self._first_io is None:
            self._first_io = now
            return
        for series, count, before in zip(self._moved, now, self._first_io, strict=True):
            points.append(series.point(count - before, unix_ns, self._start_ns))
