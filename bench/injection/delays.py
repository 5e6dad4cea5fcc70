"""Which delays are on: while the file of its name in TAILTRACE_BENCH_DELAYS holds a number of milliseconds, one is."""

from __future__ import annotations

import os

FOLDER = os.environ.get("TAILTRACE_BENCH_DELAYS", "")


def delay_s(name: str) -> float:
    """Seconds that the delay `name` lasts now, 0 while it is off."""
    try:
        with open(os.path.join(FOLDER, name)) as file:
            return float(file.read() or 0) / 1e3
    except (OSError, ValueError):
        return 0.0
