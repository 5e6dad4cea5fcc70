"""Machine code of the compiled kernels: made ahead by two processes side by side, kept on disk for every later start.

`python -m tailtrace.cli.processes.kernels` makes what is missing; `make` runs it as it installs. A server that finds it
missing does the same before it tells its address, instead of compiling in the middle of its first requests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def _doors() -> tuple[Callable[[], None], Sequence[Any]]:
    from tailtrace.ingest.receiver.checks import warm_up
    from tailtrace.ingest.receiver.checks.scan import scan

    return warm_up, (scan,)


def _jobs() -> tuple[Callable[[], None], Sequence[Any]]:
    from tailtrace.analytics import warm_up
    from tailtrace.analytics.attribution.attribute import attribute_into
    from tailtrace.analytics.attribution.tree import build

    return warm_up, (build, attribute_into)


_PARTS: Mapping[str, Callable[[], tuple[Callable[[], None], Sequence[Any]]]] = {"doors": _doors, "jobs": _jobs}


def missing(kernel: Any) -> bool:
    """Whether a compiled function has nothing on disk that is as new as its source, but could have."""
    folder = kernel.stats.cache_path
    if folder is None:  # nowhere to keep it: each process compiles for itself
        return False
    source = Path(kernel.py_func.__code__.co_filename)
    made = [path.stat().st_mtime for path in Path(folder).glob(f"*.{kernel.py_func.__qualname__}-*.nbi")]
    return source.exists() and max(made, default=0.0) < source.stat().st_mtime


class Compiling:
    """The processes at work; none where nothing is missing."""

    def __init__(self, parts: Sequence[str] = tuple(_PARTS)) -> None:
        self._processes = [
            subprocess.Popen([sys.executable, "-m", "tailtrace.cli.processes.kernels", part], stdin=subprocess.DEVNULL)
            for part in parts
            if any(missing(kernel) for kernel in _PARTS[part]()[1])
        ]

    def __bool__(self) -> bool:
        return bool(self._processes)

    def wait(self) -> bool:
        """Until they are done, and whether all went well. One that failed costs time later: the server compiles what it
        needs itself."""
        codes = [process.wait() for process in self._processes]
        return not any(codes)


if __name__ == "__main__":
    if sys.argv[1:]:
        _PARTS[sys.argv[1]]()[0]()
    elif not Compiling().wait():
        sys.exit("the kernels could not be compiled: see above")
