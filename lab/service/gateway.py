"""The gateway: what stands before the model, and the choice of a replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tailtrace.lab.faults import Faults
from tailtrace.lab.request import Request


class Replica(Protocol):
    replica: int
    load: int
    down_until_ns: int


class Gateway:
    """Its own stages are fixed when a request arrives; the replica is chosen when it gets there."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    @staticmethod
    def front_end_ns(request: Request) -> int:
        """When the request stands before the router, or was refused."""
        at = request.arrival_ns + request.net_in_ns + request.auth_ns
        if request.refused == 401:
            return at
        at += request.rate_limit_ns
        return at if request.refused else at + request.external_ns

    def choose(self, request: Request, replicas: Sequence[Replica], now_ns: int, turn: float) -> int:
        """Least outstanding requests, ties in rotation; `turn` in [0, 1) decides a skewed choice."""
        skew = self._faults.value("route_skew", now_ns, request.service)
        if skew > turn:
            return 0
        alive = [each for each in replicas if each.down_until_ns <= now_ns] or list(replicas)
        start = request.number % len(alive)
        return min([*alive[start:], *alive[:start]], key=lambda each: each.load).replica
