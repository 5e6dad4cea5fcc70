"""One sampler a host: NVML is one driver-wide lock, and two samplers would only wait for each other."""

from __future__ import annotations

import socket

from tailtrace.errors import ConfigError


class AlreadySampling(ConfigError):
    """Another process of this host (of this network namespace) samples."""


def take_place(name: str = "tailtrace-sampler") -> socket.socket:
    """Hold the place until the socket is closed or the process ends, however it ends. Raises AlreadySampling."""
    place = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        place.bind(f"\0{name}")  # an abstract name: no file is left behind by a killed process
    except OSError:
        place.close()
        raise AlreadySampling(
            "expected no other sampler on this host, but one is running: one is enough for all services; stop it first "
            "to change its options"
        ) from None
    return place
