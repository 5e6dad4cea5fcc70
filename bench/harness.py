"""What every benchmark shares: arguments, the last line of JSON, medians, and processes watched from outside.

A benchmark is a script: `python bench/NAME.py [--seed N] [--quick] [--work DIR]`. It prints figures for people and, as
its last line, one JSON object {"bench", "seed", "figures"}; a figure that was not measured is null, never a guess.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import psutil

Figure = float | int | None
P = ParamSpec("P")
T = TypeVar("T")


def arguments(description: str) -> argparse.ArgumentParser:
    """The parser with the options that all benchmarks take; add your own before parsing."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="every random draw follows from it")
    parser.add_argument("--quick", action="store_true", help="under a minute: shows that it works, not how fast it is")
    parser.add_argument("--work", type=Path, default=None, help="folder for data and peers' environments (kept)")
    return parser


@contextmanager
def workspace(work: Path | None) -> Iterator[Path]:
    """The folder given by --work, kept; or a temporary one, removed."""
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        yield work.resolve()
        return
    directory = Path(tempfile.mkdtemp(prefix="tailtrace-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def machine() -> str:
    """The machine in words, as it stands beside published figures."""
    cores = len(os.sched_getaffinity(0))
    memory_gib = psutil.virtual_memory().total / 2**30
    return f"{cores} cores, {memory_gib:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def report(bench: str, seed: int, figures: Mapping[str, Figure]) -> None:
    """Prints the figures for people, then the last line for programs."""
    print(f"\n{bench} on {machine()}")
    for name, value in figures.items():
        print(f"  {name:24s} {'not measured' if value is None else _readable(value)}")
    rounded = {name: round(v, 4) if isinstance(v, float) else v for name, v in figures.items()}
    print(json.dumps({"bench": bench, "seed": seed, "figures": rounded}), flush=True)


def _readable(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def quantile(values: Sequence[float], q: float) -> float:
    """Nearest rank, ceil(q * n), as everywhere in this project."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered) - 1e-9) - 1)]


def in_own_process(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` run in a fresh process: the embedded engine is one a process and stays until its end."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def tree(pid: int) -> list[psutil.Process]:
    """The process and all its living descendants."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds that the process tree has used, children already gone included where counted."""
    total = 0.0
    for process in tree(pid):
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def rss_mib(pid: int) -> float:
    """Resident memory of the process tree in MiB; shared pages count once per process, so this is the upper bound."""
    total = 0
    for process in tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20


class PeakMemory:
    """Watches a process tree's resident memory ten times a second until left; `mib` is the peak seen."""

    def __init__(self, pid: int) -> None:
        self.mib = 0.0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.mib = max(self.mib, rss_mib(self._pid))

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str, every_s: float = 0.05) -> float:
    """Seconds until the condition held; TimeoutError names what did not happen."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise TimeoutError(f"{what} did not happen within {timeout_s:.0f} s")
        time.sleep(every_s)
    return time.monotonic() - started
