"""Processes by number: whose number it is, what it is called, which ones belong to a service."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tailtrace.instrumentation.sampler.host.files import content_of

PROC: Final = Path("/proc")
_FIRST_NAMESPACE: Final = 4026531836
"""Inode of the machine's own PID namespace, fixed in the kernel (PROC_PID_INIT_INO)."""


def in_first_namespace(proc: Path = PROC) -> bool:
    """Whether this process sees PIDs as the machine itself does."""
    try:
        return os.stat(proc / "self/ns/pid").st_ino == _FIRST_NAMESPACE
    except OSError:
        return False


def inner_pid(pid: int, proc: Path = PROC) -> int | None:
    """The number under which this process sees what the driver calls `pid`; None for a process it does not see.

    The driver tells the machine's numbers. In a container the same number may be another process: it is believed only
    of a process that holds an NVIDIA device open.
    """
    base = proc / str(pid)
    if not base.exists():
        return None
    if in_first_namespace(proc):
        return pid
    try:
        with os.scandir(base / "fd") as entries:
            held = any(os.readlink(entry.path).startswith("/dev/nvidia") for entry in entries)
    except OSError:
        return None
    return pid if held else None


def name_of(pid: int, proc: Path = PROC) -> str:
    """The process's short name, at most 15 characters; empty where it is gone."""
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def parents(proc: Path = PROC, known: Mapping[int, int] | None = None) -> dict[int, int]:
    """Each process's parent. `known`: those of the last look, believed of processes that are still there with them."""
    known = known or {}
    there = {int(entry) for entry in os.listdir(proc) if entry.isdigit()}
    found = {}
    for pid in there:
        parent = known.get(pid)
        if parent in there:
            found[pid] = parent
            continue
        stat = content_of(f"{proc}/{pid}/stat")
        if stat:
            found[pid] = int(stat[stat.rindex(b")") + 2 :].split(None, 2)[1])
    return found


def chosen(
    pids: Iterable[int], pattern: re.Pattern[str] | None, proc: Path = PROC, tree: Mapping[int, int] | None = None
) -> set[int]:
    """The given processes, those whose command line matches, and all their descendants; never the sampler.

    `tree`: each process's parent, read where it is not given.
    """
    tree = parents(proc) if tree is None else tree
    roots = {pid for pid in pids if pid in tree}
    own = os.getpid()
    if pattern is not None:
        roots |= {pid for pid in tree if pid != own and pattern.search(_command_line(pid, proc))}
    children: dict[int, list[int]] = {}
    for pid, parent in tree.items():
        children.setdefault(parent, []).append(pid)
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in roots:
                roots.add(child)
                waiting.append(child)
    return roots - {own}


def _command_line(pid: int, proc: Path) -> str:
    return (content_of(f"{proc}/{pid}/cmdline") or b"").replace(b"\0", b" ").decode("utf-8", "replace")
