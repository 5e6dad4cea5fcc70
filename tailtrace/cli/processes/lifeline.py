"""A child ends when its parent does, also when the parent is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Ask the kernel for a signal on the parent's death (Linux); exits at once when the parent is gone already.

    The kernel counts the thread that started the child as its parent: start children from the main thread.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(0)
