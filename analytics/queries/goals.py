"""What a service is for: answering people while they wait (`online`), or getting work done (`offline`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tailtrace.analytics.queries.window import newest_ns
from tailtrace.analytics.verdicts.observed import Floats, Observed, Requests
from tailtrace.errors import ConfigError
from tailtrace.ingest.store import Store

Goal = Literal["online", "offline"]
STREAMED: Final = 0.5  # the share of requests with a first token of their own from which a service is guessed online
NONE_SET: Final[Mapping[str, Goal]] = {}
_DAY_S: Final = 86_400
_STREAMED: Final = """
SELECT Service AS service, toFloat64(sumIf(N, Metric = 'ttft' AND Streaming != 'false')) AS streamed,
  toFloat64(sumIf(N, Metric = 'duration')) AS n
FROM rollup_1h WHERE Metric IN ('duration', 'ttft') AND Time >= toDateTime64({since:Int64}, 0, 'UTC')
GROUP BY service HAVING n > 0
"""


@dataclass(frozen=True, slots=True)
class GoalFigure:
    """A figure that the goal is about, before and now; `better` says which way. Units are in `metric`."""

    metric: str
    before: float | None
    during: float | None
    better: Literal["lower", "higher"]


def goals_of(text: str) -> dict[str, Goal]:
    """`chat=online batch=offline` as the setting has it. Raises ConfigError."""
    found: dict[str, Goal] = {}
    for part in text.split():
        service, _, goal = part.rpartition("=")
        if not service or goal not in ("online", "offline"):
            raise ConfigError(f"goals are SERVICE=online or SERVICE=offline, separated by blanks; got {part[:80]!r}")
        found[service] = "online" if goal == "online" else "offline"
    return found


def guessed(requests: Requests) -> Goal:
    """By the share of requests that have a first token of their own; online where there are none."""
    return _by_share(float(requests.streamed.mean()) if len(requests) else 1.0)


def service_goals(store: Store, told: Mapping[str, Goal]) -> dict[str, Goal]:
    """What services are for: as told, else guessed from their requests of the day before the newest data."""
    newest = newest_ns(store)
    if newest is None:
        return dict(told)
    rows = store.query(_STREAMED, {"since": newest // 10**9 - _DAY_S}, role="jobs")
    return {str(row["service"]): _by_share(row["streamed"] / row["n"]) for row in rows} | dict(told)


def _by_share(streamed: float) -> Goal:
    return "online" if streamed >= STREAMED else "offline"


def figures(goal: Goal, before: Observed, during: Observed) -> list[GoalFigure]:
    """Online: first token, later tokens, goodput. Offline: tokens a second, GPU time a token."""
    if goal == "online":
        return [
            GoalFigure("mean TTFT ms", _ttft_ms(before), _ttft_ms(during), "lower"),
            GoalFigure("mean TPOT ms", _tpot_ms(before), _tpot_ms(during), "lower"),
            GoalFigure("requests/s that ended well", _goodput(before), _goodput(during), "higher"),
        ]
    return [
        GoalFigure("output tokens/s", tokens_per_second(before), tokens_per_second(during), "higher"),
        GoalFigure("GPU-seconds a token", gpu_seconds(before), gpu_seconds(during), "lower"),
    ]


def tokens_per_second(seen: Observed) -> float | None:
    """Output tokens of the requests that started in the window, a second of it; None where none are known."""
    made = float(np.nansum(seen.requests.output_tokens))
    return made / seen.seconds if made and seen.seconds > 0 else None


def gpu_seconds(seen: Observed) -> float | None:
    """GPUs x time / output tokens, idle time included; None without GPUs or tokens."""
    gpus = len({gpu for group in seen.gpus.values() for gpu in group})
    made = float(np.nansum(seen.requests.output_tokens))
    return gpus * seen.seconds / made if made and gpus else None


def _ttft_ms(seen: Observed) -> float | None:
    return _mean(seen.requests.ttft_ns[seen.requests.ok] / 1e6)


def _tpot_ms(seen: Observed) -> float | None:
    rows = seen.requests.where(seen.requests.ok & (seen.requests.output_tokens > 1))
    return _mean((rows.duration_ns - rows.ttft_ns) / (rows.output_tokens - 1) / 1e6)


def _goodput(seen: Observed) -> float | None:
    return float(seen.requests.ok.sum()) / seen.seconds if seen.seconds > 0 else None


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
