"""PCIe and NVLink of one GPU: what the links can carry, their state, their replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.calls import Call, Meters
from tailtrace.instrumentation.sampler.cumulative import Cumulative, Step
from tailtrace.instrumentation.sampler.drops import Drops
from tailtrace.instrumentation.sampler.nvml import Device, Session, reason_of
from tailtrace.instrumentation.sampler.series import Series

PCIE_LANE_PER_S: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9, 7: 15.125e9}
"""Bytes a second of one lane in one direction, line coding taken off, by PCIe generation."""
_LINK_COUNT, _LINK_SPEED = 91, 164
_UP: Final = 1


class Links:
    """`pcie_per_s`, `nvlink_per_s`: bytes a second in one direction at best, 0 where unknown or absent."""

    def __init__(self, session: Session, device: Device, meters: Meters, absences: Absences, drops: Drops) -> None:
        self._api, self._handle, self._uuid = session.api, device.handle, device.uuid
        self._meters, self._absences, self._drops = meters, absences, drops
        self._hw = {"hw.id": device.uuid, "hw.type": "gpu"}
        self._replays = Cumulative()
        self._replayed = Series("tailtrace.link.replays", {**self._hw, "tailtrace.link": "pcie"})
        self.pcie_per_s = 0.0
        self.nvlink_per_s = 0.0
        api, handle = self._api, self._handle
        self._pcie = {
            ("generation", "current"): self._call("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            ("width", "current"): self._call("nvmlDeviceGetCurrPcieLinkWidth", handle),
            ("generation", "max"): self._call("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            ("width", "max"): self._call("nvmlDeviceGetMaxPcieLinkWidth", handle),
        }
        self._replay_call = self._call("nvmlDeviceGetPcieReplayCounter", handle)
        self._fields = Call(
            meters["nvmlDeviceGetFieldValues"], api.NVMLError,
            lambda: api.nvmlDeviceGetFieldValues(handle, [(_LINK_COUNT, 0), (_LINK_SPEED, 0)]),
        )  # fmt: skip
        self._series = {
            (what, state): Series(
                f"tailtrace.link.{what}", {**self._hw, "tailtrace.link": "pcie", "tailtrace.state": state}
            )
            for what, state in self._pcie
        }

    def slow(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        for what in ("generation", "width"):
            value = self._read(self._pcie[what, "current"], f"tailtrace.link.{what}", now_s)
            if value is not None:
                points.append(self._series[what, "current"].point(value, unix_ns))
        replays = self._read(self._replay_call, "tailtrace.link.replays", now_s)
        if replays is not None:
            counter = self._replays
            # Wraps at 2^32; a million replays a second is more than any link makes.
            step = counter.update(replays, unix_ns, bits=32, most_per_s=1e6)
            if step is Step.ADVANCED:
                points.append(self._replayed.point(counter.total, unix_ns, counter.start_ns))
            elif step is not Step.FIRST:
                self._drops.add(step.value)

    def rare(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        best: dict[str, int] = {}
        for what in ("generation", "width"):
            value = self._read(self._pcie[what, "max"], f"tailtrace.link.{what}", now_s)
            if value is not None:
                best[what] = value
                points.append(self._series[what, "max"].point(value, unix_ns))
        if len(best) == 2:
            self.pcie_per_s = PCIE_LANE_PER_S.get(best["generation"], 0.0) * best["width"]
            self._limit("pcie", self.pcie_per_s, unix_ns, points)
        self._nvlink(now_s, unix_ns, points)

    def _nvlink(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        values = self._fields.read(now_s)
        if values is None:
            if self._fields.reason is not None:
                self._absences.note("tailtrace.link.active", self._fields.reason, self._uuid)
            return
        count, speed = values[0], values[1]
        if count.nvmlReturn or not count.value.uiVal:
            reason = reason_of(count.nvmlReturn) if count.nvmlReturn else "no_nvlink"
            self._absences.note("tailtrace.link.active", reason, self._uuid)
            return
        up = sum(self._is_up(link) for link in range(count.value.uiVal))
        points.append(
            Series("tailtrace.link.active", {**self._hw, "tailtrace.link": "nvlink"}).point(up, unix_ns)
        )  # fmt: skip
        if not speed.nvmlReturn:
            self.nvlink_per_s = up * speed.value.uiVal * 1e6
            self._limit("nvlink", self.nvlink_per_s, unix_ns, points)

    def _is_up(self, link: int) -> bool:
        try:
            return bool(self._api.nvmlDeviceGetNvLinkState(self._handle, link) == _UP)
        except self._api.NVMLError:
            return False

    def _limit(self, link: str, per_s: float, unix_ns: int, points: list[Point]) -> None:
        if per_s:
            points.append(Series("tailtrace.link.limit", {**self._hw, "tailtrace.link": link}).point(per_s, unix_ns))

    def _call(self, name: str, handle: Any) -> Call:
        run: Callable[[Any], int] = getattr(self._api, name)
        return Call(self._meters[name], self._api.NVMLError, lambda: run(handle))

    def _read(self, call: Call, metric: str, now_s: float) -> int | None:
        had = call.reason
        value = call.read(now_s)
        if call.reason is not None:
            self._absences.note(metric, call.reason, self._uuid)
        elif had is not None:
            self._absences.clear(metric, self._uuid)
        return value
