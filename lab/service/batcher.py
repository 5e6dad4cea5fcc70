"""A one-shot model behind a dynamic batcher: whole requests wait for a batch to form, then share one forward pass."""

from __future__ import annotations

from collections.abc import Callable

from tailtrace.lab.clock import MILLISECOND, Clock
from tailtrace.lab.faults import Faults
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Service
from tailtrace.lab.service.engine import Stretch
from tailtrace.lab.service.runner import Runner
from tailtrace.lab.service.scheduler import Batch


class Batcher:
    """Starts a batch when it is full or its oldest request has waited `batch_delay_ms`; one batch runs at a time."""

    def __init__(
        self, service: Service, replica: int, clock: Clock, runner: Runner, faults: Faults,
        on_finish: Callable[[Request], None], on_stretch: Callable[[int, Stretch], None],
    ) -> None:  # fmt: skip
        self.replica = replica
        self.load = 0
        self.down_until_ns = 0
        self._service, self._clock, self._runner, self._faults = service, clock, runner, faults
        self._on_finish, self._on_stretch = on_finish, on_stretch
        self._waiting: list[Request] = []
        self._running: list[Request] = []

    def add(self, request: Request) -> None:
        now = self._clock.now_ns()
        request.submitted_ns = now
        self.load += 1
        self._waiting.append(request)
        if not self._running:
            request.scheduled_ns = now
        delay_ms = self._service.batch_delay_ms + self._faults.value(
            "batch_delay_ms", now, self._service.name, self.replica
        )
        self._clock.at(now + int(delay_ms * MILLISECOND), self._start, request)
        if len(self._waiting) >= self._service.max_batch:
            self._start(request)

    def abort(self, request: Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self.load -= 1

    def crash(self, down_ns: int) -> list[Request]:
        self.down_until_ns = self._clock.now_ns() + down_ns
        lost, self._running = self._running, []
        self.load -= len(lost)
        if self._waiting:
            self._clock.at(self.down_until_ns, self._start, self._waiting[0])
        return lost

    def _start(self, due: Request) -> None:
        """Run a batch, if this request still waits and the model is free."""
        now = self._clock.now_ns()
        if self._running or due not in self._waiting or now < self.down_until_ns:
            return
        batch, self._waiting = self._waiting[: self._service.max_batch], self._waiting[self._service.max_batch :]
        self._running = batch
        for request in batch:
            request.scheduled_ns = request.scheduled_ns if request.scheduled_ns >= 0 else now
            request.batched_ns = now
        tokens = sum(request.input_tokens for request in batch)
        forward_ns = self._runner.forward_ns(now, tokens, len(batch))
        self._on_stretch(self.replica, Stretch(now, forward_ns, 1, Batch(), len(batch), len(self._waiting), 0, 0.0))
        self._clock.at(now + forward_ns, self._done, batch)

    def _done(self, batch: list[Request]) -> None:
        if batch is not self._running:
            return
        self._running = []
        now = self._clock.now_ns()
        for request in batch:
            request.last_token_ns = now
            self.load -= 1
            if not request.outcome:
                self._on_finish(request)
        if self._waiting:
            # What came meanwhile was held by the running batch (queue); from here on it waits for its own to form.
            for request in self._waiting:
                request.scheduled_ns = request.scheduled_ns if request.scheduled_ns >= 0 else now
            oldest = self._waiting[0]
            delay_ms = self._service.batch_delay_ms + self._faults.value(
                "batch_delay_ms", now, self._service.name, self.replica
            )
            if len(self._waiting) >= self._service.max_batch or now >= oldest.submitted_ns + int(
                delay_ms * MILLISECOND
            ):
                self._start(oldest)
