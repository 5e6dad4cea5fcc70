"""InfiniBand and RoCE ports: bytes between hosts, which NVML does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.host.counts import Count
from tailtrace.instrumentation.sampler.host.files import KeptFile

_WORD_BYTES: Final = 4
_FILES: Final = {"port_xmit_data": "transmit", "port_rcv_data": "receive"}


class InfiniBand:
    """Ports there are when the sampler starts; a host without any has nothing to say."""

    def __init__(self, root: Path = Path("/sys/class/infiniband")) -> None:
        self._ports = [
            (KeptFile(port / "counters" / name), self._count(port, direction))
            for port in sorted(root.glob("*/ports/*"))
            for name, direction in _FILES.items()
        ]

    def tick(self, unix_ns: int, points: list[Point]) -> None:
        for file, count in self._ports:
            content = file.read()
            if content is not None and content.strip().isdigit():
                count.add(int(content), unix_ns, points)

    @staticmethod
    def _count(port: Path, direction: str) -> Count:
        attributes = {
            "hw.id": f"{port.parts[-3]}/{port.name}", "hw.type": "network",
            "tailtrace.link": "infiniband", "network.io.direction": direction,
        }  # fmt: skip
        return Count("tailtrace.link.io", attributes, _WORD_BYTES)
