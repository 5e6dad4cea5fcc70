"""The lab for real: servers in processes of their own, with real sockets, threads and waits, instrumented by hand."""

from tailtrace.lab.live.lab import LiveLab

__all__ = ["LiveLab"]
