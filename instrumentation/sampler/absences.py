"""What cannot be read, and why: said when it begins, when its reason changes, and then once an hour."""

from __future__ import annotations

from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.series import Series

REPEAT_NS: Final = 3_600_000_000_000


class Absences:
    """Absent values by (hardware id, metric). Noted from several threads; every step is one dictionary operation."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str], str] = {}
        self._due_ns: dict[tuple[str, str], int] = {}

    def note(self, metric: str, reason: str, hw_id: str = "") -> None:
        key = (hw_id, metric)
        if self._reasons.get(key) != reason:
            self._reasons[key] = reason
            self._due_ns[key] = 0

    def clear(self, metric: str, hw_id: str = "") -> None:
        self._reasons.pop((hw_id, metric), None)
        self._due_ns.pop((hw_id, metric), None)

    def clear_all(self, hw_id: str) -> None:
        for key in [key for key in self._reasons if key[0] == hw_id]:
            self.clear(key[1], hw_id)

    def reasons(self, hw_id: str = "") -> dict[str, str]:
        """Metric to reason, of one piece of hardware (or of none)."""
        return {metric: reason for (owner, metric), reason in self._reasons.items() if owner == hw_id}

    def points(self, time_unix_ns: int) -> list[Point]:
        """Those that are due."""
        made = []
        for key, due in list(self._due_ns.items()):
            reason = self._reasons.get(key)
            if time_unix_ns >= due and reason is not None:
                self._due_ns[key] = time_unix_ns + REPEAT_NS
                hw_id, metric = key
                attributes = {"tailtrace.metric": metric, "tailtrace.reason": reason}
                if hw_id:
                    attributes["hw.id"] = hw_id
                made.append(Series("tailtrace.absent", attributes).point(1, time_unix_ns))
        return made
