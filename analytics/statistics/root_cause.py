"""Which service made requests slower: the change of its time on their critical paths, network edges included.

A fault in a service's network shows between a caller's span and its callee's, in neither's own time. So the time of an
edge counts for the callee, and half of it for the caller. Scores are mean changes against the reference over kinds of
request that both have, in the mix of the window; no constant is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

OUT_EDGE: Final = 0.5


@dataclass(frozen=True, slots=True)
class PathTimes:
    """Places on the critical paths of requests, arrays by place: the request, whose time it is, and ns.

    `callee` and `caller` are services (codes below `services`) that the time counts for: of a service's own time both
    are that service, of an edge the two ends; -1 for an end that is not known.
    """

    request: Any
    callee: Any
    caller: Any
    ns: Any
    services: int

    def by_request(self, requests: int) -> Any:
        """Scored time in ns by request and service: own time, edges to it, and half of its edges to others."""
        scored = np.zeros((requests, self.services))
        known = self.callee >= 0
        np.add.at(scored, (self.request[known], self.callee[known]), self.ns[known])
        out = (self.caller >= 0) & (self.caller != self.callee)
        np.add.at(scored, (self.request[out], self.caller[out]), OUT_EDGE * self.ns[out])
        return scored


def rank(scored: Any, kind: Any, in_window: Any, in_reference: Any) -> Any:
    """Mean extra time in ns by service: what the window's requests have over the reference's of the same kind.

    `scored` is requests x services, `kind` an integer by request. Kinds without a reference are left out; zeros when
    none has one.
    """
    kinds = int(kind.max()) + 1 if len(kind) else 0
    n_window = np.bincount(kind[in_window], minlength=kinds).astype(np.float64)
    n_reference = np.bincount(kind[in_reference], minlength=kinds).astype(np.float64)
    both = (n_window > 0) & (n_reference > 0)
    if not both.any():
        return np.zeros(scored.shape[1])
    means = []
    for rows, n in ((in_window, n_window), (in_reference, n_reference)):
        sums = np.zeros((kinds, scored.shape[1]))
        np.add.at(sums, kind[rows], scored[rows])
        means.append(sums / np.maximum(n, 1)[:, None])
    weight = np.where(both, n_window, 0.0) / n_window[both].sum()
    return weight @ (means[0] - means[1])


def kinds_of(keys: Sequence[Any]) -> Any:
    """One integer by request from several columns of integers."""
    return np.unique(np.stack(list(keys), axis=1), axis=0, return_inverse=True)[1].reshape(-1)
