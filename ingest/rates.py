"""How fast counters have been growing lately."""

from collections import deque
from collections.abc import Mapping
from typing import Final

WINDOW_S: Final = 60.0


class Rates:
    """Increase a second over about the last minute, of counters that are noted every now and then. For one writer."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """`names` of the counters that are kept."""
        self._names = names
        self._noted: deque[tuple[float, tuple[int, ...]]] = deque()

    def note(self, now_s: float, counters: Mapping[str, int]) -> None:
        """Their values now; `now_s` on any monotonic clock."""
        self._noted.append((now_s, tuple(counters[name] for name in self._names)))
        while len(self._noted) > 2 and self._noted[1][0] <= now_s - WINDOW_S:
            self._noted.popleft()

    def per_second(self) -> dict[str, float]:
        """Empty until two values are known."""
        if len(self._noted) < 2:
            return {}
        (first, before), (last, after) = self._noted[0], self._noted[-1]
        seconds = max(last - first, 1e-9)
        return {name: round((b - a) / seconds, 3) for name, a, b in zip(self._names, before, after, strict=True)}
