"""What the sampler would read of a GPU's links: PCIe to the host, NVLink to the other ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tailtrace.instrumentation.otlp import Point
from tailtrace.lab.clock import SECOND

PCIE_BYTES_PER_S = 63e9
NVLINKS, NVLINK_BYTES_PER_S = 18, 26.5e9


class LinkCounters:
    """Keeps the cumulative counts of every GPU's links."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[str, str, str], float] = defaultdict(float)

    def points(
        self,
        gpu: Mapping[str, Any],
        at_ns: int,
        since_ns: int,
        every_ns: int,
        busy: float,
        has_nvlink: bool,
        down: float,
        loading: float,
    ) -> list[Point]:
        """Readings over the `every_ns` before `at_ns`: `busy` the share in which steps ran, `down` the share of NVLinks
        that are gone, `loading` the share of PCIe that KV blocks take on their way in.
        """  # fmt: skip
        active = round(NVLINKS * (1.0 - min(down, 1.0)))
        shares = {("pcie", "receive"): 0.01 * busy + min(loading, 0.95), ("pcie", "transmit"): 0.01 * busy}
        limits = {"pcie": PCIE_BYTES_PER_S}
        if has_nvlink:
            # The same traffic over fewer links fills more of what is left.
            share = min(0.95, 0.18 * busy * NVLINKS / max(active, 1))
            shares |= {("nvlink", "receive"): share, ("nvlink", "transmit"): share}
            limits["nvlink"] = active * NVLINK_BYTES_PER_S
        made = []
        for (link, direction), share in shares.items():
            rate = share * limits[link]
            key = (str(gpu["hw.id"]), link, direction)
            self._bytes[key] += rate * every_ns / SECOND
            named = {**gpu, "tailtrace.link": link, "network.io.direction": direction}
            made.append(Point("tailtrace.link.io", "By", "sum", int(self._bytes[key]), at_ns, named, since_ns))
            made.append(Point("tailtrace.link.bandwidth", "By/s", "gauge", rate, at_ns, named))
        for link, limit in limits.items():
            made.append(Point("tailtrace.link.limit", "By/s", "gauge", limit, at_ns, {**gpu, "tailtrace.link": link}))
        if has_nvlink:
            made.append(
                Point("tailtrace.link.active", "{link}", "gauge", active, at_ns, {**gpu, "tailtrace.link": "nvlink"})
            )
        return made
