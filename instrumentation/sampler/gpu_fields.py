"""Which fields are read of a GPU each fast tick, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailtrace.instrumentation.sampler.cumulative import Cumulative
from tailtrace.instrumentation.sampler.fields import ALL_LINKS, Field
from tailtrace.instrumentation.sampler.series import Series

PCIE_FIELDS: Final = {197: "transmit", 198: "receive"}
NVLINK_FIELDS: Final = {138: "transmit", 139: "receive"}
NVLINK_RAW_FIELDS: Final = {140: "transmit", 141: "receive"}
POWER_FIELD: Final = 186
ENERGY_FIELD: Final = 83
MEMORY_TEMPERATURE_FIELD: Final = 82
THROTTLE_FIELDS: Final = {74: "sw_power_cap", 76: "sync_boost"}
LATER_THROTTLE_FIELDS: Final = {269: "sw_thermal", 270: "hw_thermal", 271: "hw_power_brake"}
TRUSTED_THROTTLE_DRIVER: Final = 580
"""Before it the later throttle fields had other numbers: what they would say is not known."""
_KIB: Final = 1024


class Counters:
    """The cumulative counters of one GPU by field number; they outlive a session, so that totals go on."""

    def __init__(self) -> None:
        self._by_field: dict[int, Cumulative] = {}

    def __getitem__(self, number: int) -> Cumulative:
        return self._by_field.setdefault(number, Cumulative())

    def reseed(self) -> None:
        for counter in self._by_field.values():
            counter.reseed()


def gpu_fields(
    uuid: str, driver: int, counters: Counters, *, pcie_per_s: float, nvlink_per_s: float, interval_s: float
) -> Iterator[Field]:
    """The fields of a whole GPU. `..._per_s`: what the links carry at best in bytes a second (0: unknown)."""
    hw = {"hw.id": uuid, "hw.type": "gpu"}
    longest_ns = int(10 * interval_s * 1e9)
    for number, direction in PCIE_FIELDS.items():
        yield _link(number, "pcie", direction, hw, counters, 1, pcie_per_s, longest_ns)
    for number, direction in NVLINK_FIELDS.items():
        yield _link(number, "nvlink", direction, hw, counters, _KIB, nvlink_per_s, longest_ns)
    for number, direction in NVLINK_RAW_FIELDS.items():
        name = "tailtrace.link.raw_io"
        series = Series(name, {**hw, "tailtrace.link": "nvlink", "network.io.direction": direction})
        metric = f"{name}/nvlink/{direction}"
        yield Field(
            number, series, metric, ALL_LINKS, _KIB, counters[number], most_per_s=nvlink_per_s / _KIB
        )  # fmt: skip
    yield Field(ENERGY_FIELD, Series("hw.energy", hw), "hw.energy", scale=1e-3, cumulative=counters[ENERGY_FIELD])
    power = Series("hw.power", {**hw, "tailtrace.source": "field"})
    yield Field(POWER_FIELD, power, "hw.power", scale=1e-3)
    reasons = {**THROTTLE_FIELDS, **(LATER_THROTTLE_FIELDS if driver >= TRUSTED_THROTTLE_DRIVER else {})}
    for number, reason in reasons.items():
        series = Series("tailtrace.gpu.throttle", {**hw, "tailtrace.reason": reason})
        yield Field(number, series, f"tailtrace.gpu.throttle/{reason}", cumulative=counters[number])


def _link(
    number: int,
    link: str,
    direction: str,
    hw: dict[str, str],
    counters: Counters,
    scale: int,
    most_per_s: float,
    longest_ns: int,
) -> Field:
    attributes = {**hw, "tailtrace.link": link, "network.io.direction": direction}
    return Field(
        number,
        Series("tailtrace.link.io", attributes),
        f"tailtrace.link.io/{link}/{direction}",
        ALL_LINKS if link == "nvlink" else 0,
        scale,
        counters[number],
        rate=Series("tailtrace.link.bandwidth", {**attributes, "tailtrace.source": "field"}),
        most_per_s=most_per_s / scale,
        longest_ns=longest_ns,
    )
