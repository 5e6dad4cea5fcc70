"""What a worker remembers between rounds. All of it can be forgotten: it only spares look-ups."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

MINUTE_NS: Final = 60_000_000_000
_GENERATION: Final = 1 << 18
_GENERATIONS: Final = 8


class SeenTraces:
    """Traces judged lately, by a half of their id; the oldest are forgotten.

    `since_ms`: a trace judged by a span received after this is remembered, unless another worker judged it.
    """

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self._recent = np.zeros(0, np.uint64)
        self._older: list[tuple[Any, int]] = []

    def contains(self, traces: Any) -> Any:
        # Looked up in order: each search walks where the one before it did.
        order = np.argsort(traces)
        wanted = traces[order]
        found = np.zeros(len(traces), np.bool_)
        for known in (self._recent, *(generation for generation, _ in self._older)):
            if len(known):
                at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
                found[order] |= known[at] == wanted
        return found

    def add(self, traces: Any, now_ms: int) -> None:
        # Two sorted runs: the stable sort only merges them.
        both = np.concatenate((self._recent, np.sort(traces)))
        both.sort(kind="stable")
        self._recent = both[np.append(True, both[1:] != both[:-1])] if len(both) else both
        if len(self._recent) < _GENERATION:
            return
        self._older.append((self._recent, now_ms))
        self._recent = np.zeros(0, np.uint64)
        if len(self._older) > _GENERATIONS:
            self.since_ms = self._older.pop(0)[1]


class ArrivalCounts:
    """Arrivals per minute of each service and model: the offered load, which is not the number of requests running.

    A request gets the count of the minute before it started; in a service's first minute, that of its own.
    """

    def __init__(self, keep_minutes: int = 90) -> None:
        self._counts: dict[tuple[str, str], dict[int, int]] = {}
        self._keep = keep_minutes

    def per_minute(self, service: pa.Array, model: pa.Array, starts: Any) -> Any:
        """Counts the requests given, and the load of each (float, by request)."""
        if len(starts) == 0:
            return np.zeros(0)
        services, models = service.dictionary_encode(), model.dictionary_encode()
        kinds = len(models.dictionary) + 1
        pair = services.indices.to_numpy().astype(np.int64) * kinds + models.indices.to_numpy()
        minute = starts // MINUTE_NS
        first = minute.min()
        span = int(minute.max() - first) + 1
        if int(pair.max()) * span > 1 << 62:
            return np.full(len(starts), np.nan)
        cells, inverse, counts = np.unique(pair * span + (minute - first), return_inverse=True, return_counts=True)
        service_texts, model_texts = services.dictionary.to_pylist(), models.dictionary.to_pylist()
        places = [
            ((service_texts[cell // span // kinds], model_texts[cell // span % kinds]), cell % span + int(first))
            for cell in cells.tolist()
        ]
        for (key, at), count in zip(places, counts.tolist(), strict=True):
            minutes = self._counts.setdefault(key, {})
            minutes[at] = minutes.get(at, 0) + count
            while len(minutes) > self._keep:
                del minutes[min(minutes)]
        loads = np.array(
            [self._counts[key].get(at - 1) or self._counts[key].get(at, 0) for key, at in places], np.float64
        )
        return loads[inverse.reshape(-1)]
