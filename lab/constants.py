"""The durations that a real deployment would have and no measurement here fixes: drawn anew for each seed."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator


def stream(seed: int, *names: str | int) -> Generator:
    """An independent random stream for one purpose: adding a fault never shifts what the other draws give."""
    return np.random.default_rng([seed, *(zlib.crc32(str(name).encode()) for name in names)])


@dataclass(frozen=True, slots=True)
class Constants:
    """Medians in milliseconds unless named otherwise; a request's own values are spread around them by `spread`."""

    net_in: float
    auth: float
    rate_limit: float
    retrieval: float
    route: float
    dispatch: float
    network: float
    parse: float
    template: float
    tokenize_fixed: float
    tokenize_us_per_token: float
    engine_submit: float
    engine_return: float
    detokenize: float
    handler: float
    write: float
    client_rtt: float
    gpu_speed: float
    spread: float

    @staticmethod
    def draw(seed: int, noise: float = 1.0) -> Constants:
        """Each constant within about a third of its usual value (shares of the stages follow a measured vLLM)."""
        generator = stream(seed, "constants")

        def around(median: float, sigma: float = 0.3) -> float:
            return float(median * np.exp(sigma * noise * generator.uniform(-1.0, 1.0)))

        return Constants(
            net_in=around(0.4), auth=around(3.5), rate_limit=around(0.25), retrieval=around(28.0), route=around(0.3),
            dispatch=around(0.6), network=around(0.35), parse=around(1.1), template=around(0.8),
            tokenize_fixed=around(0.6), tokenize_us_per_token=around(3.2), engine_submit=around(1.0),
            engine_return=around(0.5), detokenize=around(0.35), handler=around(0.06), write=around(0.15),
            client_rtt=around(24.0), gpu_speed=around(1.0, 0.06), spread=0.35 * noise,
        )  # fmt: skip
