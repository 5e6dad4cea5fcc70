"""One replica of a language model: the loop that asks the scheduler for a batch and the runner for its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailtrace.lab.clock import MILLISECOND, Clock
from tailtrace.lab.faults import Faults
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Service
from tailtrace.lab.service.runner import Runner
from tailtrace.lab.service.scheduler import Batch, Scheduler, Sequence

STALL_NS = 150 * MILLISECOND


@dataclass(slots=True)
class Stretch:
    """`steps` equal engine steps in a row, with what an operator would see of them."""

    start_ns: int
    step_ns: int
    steps: int
    batch: Batch
    running: int
    waiting: int
    waiting_capacity: int
    kv_usage: float
    launch_ns: int = 0  # of a step, the time the GPU waits for its kernels to be launched


class Engine:
    """Driven by a clock. Equal decode steps are one event, which ends early when the next batch may be another one."""

    def __init__(
        self, service: Service, replica: int, clock: Clock, runner: Runner, faults: Faults,
        on_finish: Callable[[Request], None], on_stretch: Callable[[int, Stretch], None],
    ) -> None:  # fmt: skip
        self.replica = replica
        self.scheduler = Scheduler(service)
        self.load = 0
        self.down_until_ns = 0
        self._service = service
        self._clock, self._runner, self._faults = clock, runner, faults
        self._on_finish, self._on_stretch = on_finish, on_stretch
        self._sequences: dict[int, Sequence] = {}
        self._current: Stretch | None = None
        self._version = 0
        self._limits_cut = bool(
            faults.windows("kv_blocks", service.name) or faults.windows("chunk_tokens", service.name)
        )

    def add(self, request: Request) -> None:
        """The scheduler accepts a request."""
        request.submitted_ns = self._clock.now_ns()
        sequence = Sequence(request, request.input_tokens, request.output_tokens)
        self._sequences[request.number] = sequence
        self.load += 1
        self.scheduler.add(sequence)
        if self._current is None:
            self._start()
        elif len(self.scheduler.running) < self.scheduler.max_batch:
            self._cut()

    def abort(self, request: Request) -> None:
        """The client left: the sequence goes at once, its step ends as it would have."""
        sequence = self._sequences.pop(request.number, None)
        if sequence is None:
            return
        self.load -= 1
        self._cut()
        self.scheduler.remove(sequence)
        request.produced = sequence.produced
        if sequence.preempted_ns >= 0:
            request.preemptions.append((sequence.preempted_ns, self._clock.now_ns()))

    def crash(self, down_ns: int) -> list[Request]:
        """The process dies and is started again. Gives the running requests, which are lost; waiting ones wait on."""
        now = self._clock.now_ns()
        self.down_until_ns = now + down_ns
        self._current = None
        self._version += 1
        waiting = [sequence.request for sequence in self.scheduler.waiting if not sequence.produced]
        lost = [sequence.request for sequence in self.scheduler.clear() if sequence.request not in waiting]
        for request in lost:
            self._sequences.pop(request.number)
            self.load -= 1
        for request in waiting:
            sequence = Sequence(request, request.input_tokens, request.output_tokens)
            self._sequences[request.number] = sequence
            self.scheduler.add(sequence)
        self._clock.at(self.down_until_ns, self._start)
        return lost

    def _start(self) -> None:
        """Begin the next step, or stand idle."""
        now = self._clock.now_ns()
        if now < self.down_until_ns or self._current is not None:
            return
        scheduler = self.scheduler
        if self._limits_cut:
            self._read_limits(now)
        batch = scheduler.schedule(now)
        if not batch:
            if scheduler.waiting:  # everything was preempted at once
                self._clock.at(now + MILLISECOND, self._start)
            return
        steps = 1 if batch.prefill or (scheduler.waiting and batch.preempted) else scheduler.horizon(batch)
        steps = min(steps, self._clock.stride)
        context = batch.context_tokens + len(batch.decodes) * (steps // 2)
        step_ns = self._runner.step_ns(now, batch.prefill_tokens, len(batch.decodes), context)
        waiting = len(scheduler.waiting)
        capacity = waiting if scheduler.waiting_for_memory() else 0
        self._current = Stretch(
            now, step_ns, steps, batch, len(scheduler.running), waiting, capacity, scheduler.kv_usage,
            int(self._faults.value("launch_ms", now, self._service.name, self.replica) * MILLISECOND),
        )  # fmt: skip
        self._clock.at(now + step_ns * steps, self._done, self._version)

    def _cut(self) -> None:
        """Let the stretch end after the step now running, because the next batch may be another one."""
        current = self._current
        if current is None or current.steps == 1:
            return
        steps = min(current.steps, max(1, -(-(self._clock.now_ns() - current.start_ns) // current.step_ns)))
        if steps < current.steps:
            current.steps = steps
            self._version += 1
            self._clock.at(current.start_ns + current.step_ns * steps, self._done, self._version)

    def _done(self, version: int) -> None:
        current = self._current
        if version != self._version or current is None:
            return
        self._current = None
        now, batch, steps, step_ns = self._clock.now_ns(), current.batch, current.steps, current.step_ns
        self._on_stretch(self.replica, current)
        self.scheduler.advance(batch, steps)
        finished = []
        for sequence in batch.decodes:
            if sequence.gone:
                continue
            request = sequence.request
            since = now - steps * step_ns
            if request.last_token_ns < since:  # a preemption or a step without this sequence lay between
                gap = since + step_ns - request.last_token_ns
                request.gaps[gap] = request.gaps.get(gap, 0) + 1
                if gap > STALL_NS:
                    request.stalls.append((request.last_token_ns, gap))
                if steps > 1:
                    request.gaps[step_ns] = request.gaps.get(step_ns, 0) + steps - 1
            else:
                request.gaps[step_ns] = request.gaps.get(step_ns, 0) + steps
                if step_ns > STALL_NS:
                    request.stalls.append((since, step_ns))
            request.last_token_ns = now
            if sequence.produced >= sequence.target:
                finished.append(sequence)
        for sequence, _ in batch.prefill:
            if sequence.gone or not sequence.decoding:
                continue
            request = sequence.request
            if request.first_token_ns < 0:
                request.first_token_ns = now
            else:
                gap = now - request.last_token_ns
                request.gaps[gap] = request.gaps.get(gap, 0) + 1
                request.stalls.append((request.last_token_ns, gap))
            request.last_token_ns = now
            if sequence.produced >= sequence.target:
                finished.append(sequence)
        for sequence in finished:
            self.scheduler.remove(sequence)
            self.load -= 1
            sequence.request.produced = sequence.produced
            del self._sequences[sequence.request.number]
            self._on_finish(sequence.request)
        if self._current is None:
            self._start()

    def _read_limits(self, now: int) -> None:
        scheduler, service, value = self.scheduler, self._service, self._faults.value
        limit = max(1, int(service.kv_blocks * min(1.0, value("kv_blocks", now, service.name, self.replica))))
        scheduler.reserve_output = value("kv_reserve", now, service.name, self.replica) > 0
        scheduler.admit_limit = limit
        scheduler.grow_limit = service.kv_blocks if scheduler.reserve_output else limit
        scheduler.chunk_tokens = int(service.chunk_tokens * value("chunk_tokens", now, service.name, self.replica))
