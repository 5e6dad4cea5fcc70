"""The model runner: how long one engine step takes, from measured A100 and H100 times."""

from __future__ import annotations

import numpy as np

from tailtrace.lab.clock import MICROSECOND, MILLISECOND
from tailtrace.lab.constants import Constants, stream
from tailtrace.lab.faults import Faults
from tailtrace.lab.scenario import Service
from tailtrace.lab.service.hardware import curves

# 80 layers x 8 KV heads x 128 x 2 x 2 bytes, read once a step at 80 % of an A100's bandwidth, over tp 4. Computed,
# not measured: the table shows no slope up to 8,192 tokens at batch 1.
CONTEXT_NS_PER_TOKEN = 45
NOISE_SLOT_NS = 64 * MILLISECOND


class Runner:
    """One replica's GPUs. Noise is a function of time, so that a run with a fault can be paired with one without."""

    def __init__(self, service: Service, replica: int, constants: Constants, faults: Faults, seed: int) -> None:
        self._service, self._replica, self._faults = service.name, replica, faults
        self._speed = constants.gpu_speed
        self._noise = np.exp(0.03 * stream(seed, service.name, replica, "steps").standard_normal(4096)).tolist()
        self._oneshot = service.kind == "oneshot"
        if not self._oneshot:
            self._prefill, self._decode = curves(service.model, service.gpu, service.tp)

    def step_ns(self, at_ns: int, prefill_tokens: int, decodes: int, context_tokens: int) -> int:
        """One step that computes `prefill_tokens` of prompts and one token for each of `decodes` sequences.

        The weights are read once for both, so a mixed step costs what its tokens cost as a prefill, and never less than
        its decodes alone.
        """
        value, name, replica = self._faults.value, self._service, self._replica
        time_ns = 0.0
        if decodes:
            time_ns = self._decode.at(decodes) + CONTEXT_NS_PER_TOKEN * context_tokens
            time_ns *= value("decode_time", at_ns, name, replica)
        if prefill_tokens:
            prefill_ns = self._prefill.at(prefill_tokens + decodes) * value("prefill_time", at_ns, name, replica)
            time_ns = max(time_ns, prefill_ns)
        return self._finish(at_ns, time_ns)

    def forward_ns(self, at_ns: int, tokens: int, batch: int) -> int:
        """One forward pass of a one-shot model over `batch` inputs of `tokens` in all (assumed, not measured)."""
        return self._finish(at_ns, 4.0 * MILLISECOND + 0.2 * MILLISECOND * batch + 9.0 * MICROSECOND * tokens)

    def _finish(self, at_ns: int, time_ns: float) -> int:
        value, name, replica = self._faults.value, self._service, self._replica
        time_ns *= self._speed * self._noise[(at_ns // NOISE_SLOT_NS) % 4096] * value("step_time", at_ns, name, replica)
        return int(time_ns + value("launch_ms", at_ns, name, replica) * MILLISECOND)
