"""One run of a scenario in virtual time: parts put together, requests sent through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tailtrace.lab.arrivals import Arrivals
from tailtrace.lab.clock import MILLISECOND, SECOND, VirtualClock
from tailtrace.lab.constants import Constants, stream
from tailtrace.lab.faults import Faults
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Scenario
from tailtrace.lab.service.batcher import Batcher
from tailtrace.lab.service.engine import Engine, Stretch
from tailtrace.lab.service.gateway import Gateway
from tailtrace.lab.service.runner import Runner
from tailtrace.lab.service.tokenizer import Tokenizer

# Of a rush that scaling answers too late, the share that is over when the new replica serves.
LATE_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Startup:
    """A replica came up: from `start_ns` for `length_ns`."""

    service: str
    replica: int
    start_ns: int
    length_ns: int


class Simulation:
    """`finished` collects requests as they end, `startups` the replicas that came up; the reader empties both."""

    def __init__(
        self, scenario: Scenario, *, start_unix_ns: int, length_ns: int, seed: int,
        on_stretch: Callable[[str, int, Stretch], None] | None = None,
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self.length_ns = length_ns
        self.start_unix_ns = start_unix_ns
        self.faults = Faults(scenario, length_ns)
        self.constants = Constants.draw(seed, scenario.fleet.noise)
        self.clock = VirtualClock()
        self.finished: list[Request] = []
        self.startups: list[Startup] = []
        self.absent_until: dict[tuple[str, int], int] = {}
        self.arrived = 0
        self.ended = 0
        self._on_stretch = on_stretch
        self._turns = stream(seed, "router").random(4096).tolist()
        self._gateway = Gateway(self.faults)
        self._tokenizers: dict[str, list[Tokenizer]] = {}
        self.engines: dict[str, list[Engine | Batcher]] = {}
        for service in scenario.fleet.services:
            kind = Engine if service.kind == "llm" else Batcher
            self._tokenizers[service.name] = [
                Tokenizer(service, index, self.constants, self.faults) for index in range(service.replicas)
            ]
            self.engines[service.name] = [
                kind(service, index, self.clock, Runner(service, index, self.constants, self.faults, seed), self.faults,
                     self._returned, self._stretch_sink(service.name))
                for index in range(service.replicas)
            ]  # fmt: skip
            for start, _, seconds, replica in self.faults.windows("restart_s", service.name):
                if seconds > 0:
                    self.clock.at(start, self._restart, service.name, replica or 0, int(seconds * SECOND))
            for start, end, seconds, _ in self.faults.windows("late_s", service.name):
                if seconds > 0:
                    self._scale_up(service.name, start, end, int(seconds * SECOND))
        arrivals = Arrivals(scenario, self.faults, self.constants, start_unix_ns=start_unix_ns, seed=seed)
        self.requests = arrivals.draw(length_ns)
        self._next = 0

    def run(self, slice_ns: int = 60 * SECOND) -> Iterator[int]:
        """Run to the end in slices; yields the time reached after each."""
        until = 0
        while until < self.length_ns:
            until = min(until + slice_ns, self.length_ns)
            self.advance(until)
            yield until

    def advance(self, until_ns: int) -> None:
        """Admit what arrives before `until_ns` and run the clock up to it."""
        requests = self.requests
        while self._next < len(requests) and requests[self._next].arrival_ns < until_ns:
            request = requests[self._next]
            self._next += 1
            self.arrived += 1
            self.clock.at(Gateway.front_end_ns(request), self._route, request)
            if request.patience_ns >= 0:
                self.clock.at(request.arrival_ns + request.patience_ns, self._leave, request)
        self.clock.run(until_ns)

    @property
    def running(self) -> int:
        """Requests that arrived and have not ended."""
        return self.arrived - self.ended

    def _stretch_sink(self, service: str) -> Callable[[int, Stretch], None]:
        sink = self._on_stretch
        if sink is None:
            return lambda replica, stretch: None
        return lambda replica, stretch: sink(service, replica, stretch)

    def _route(self, request: Request) -> None:
        now = self.clock.now_ns()
        if request.outcome:  # left before it got here
            return
        request.routed_ns = now
        if request.refused:
            return self._end(request, "rejected", now + int(0.1 * MILLISECOND * request.spread))
        turn = self._turns[request.number % 4096]
        request.replica = self._gateway.choose(request, self.engines[request.service], now, turn)
        c, spread = self.constants, request.spread * MILLISECOND
        at = request.dispatched_ns = now + request.route_ns + request.dispatch_ns
        at = request.engine_start_ns = at + request.network_ns
        at = request.parsed_ns = at + int(c.parse * spread)
        at = request.template_start_ns = at + int(c.handler * spread)
        at = request.templated_ns = at + int(c.template * spread)
        at = request.tokenized_ns = self._tokenizers[request.service][request.replica].done_ns(request, at)
        at += int(c.engine_submit * spread)
        at += int(self.faults.value("submit_ms", at, request.service, request.replica) * spread)
        request.kv_start_ns = at
        request.kv_load_ns = int(self.faults.value("kv_load_ms", at, request.service, request.replica) * spread)
        request.kv_transfer_ns = int(self.faults.value("kv_transfer_ms", at, request.service, request.replica) * spread)
        self.clock.at(at + request.kv_load_ns + request.kv_transfer_ns, self._submit, request)

    def _submit(self, request: Request) -> None:
        if not request.outcome:
            self.engines[request.service][request.replica].add(request)

    def _returned(self, request: Request) -> None:
        """The last token was produced: what is left is the way back, which nothing else waits for."""
        c, spread = self.constants, request.spread * MILLISECOND
        self._end(
            request, "ok", request.last_token_ns + int((c.engine_return + c.detokenize + c.write + c.handler) * spread)
        )

    def _leave(self, request: Request) -> None:
        if request.outcome:
            return
        if request.submitted_ns >= 0:
            self.engines[request.service][request.replica].abort(request)
        self._end(request, "cancelled", self.clock.now_ns())

    def _restart(self, service: str, replica: int, down_ns: int) -> None:
        now = self.clock.now_ns()
        self.startups.append(Startup(service, replica, now, down_ns))
        for request in self.engines[service][replica].crash(down_ns):
            if not request.outcome:
                self._end(request, "error", now)

    def _scale_up(self, service: str, start: int, end: int, startup_ns: int) -> None:
        """The last replica is not there until well into the rush, and then takes its time to start."""
        late = self.engines[service][-1]
        ready = start + int(LATE_SHARE * (end - start))
        late.down_until_ns = ready
        began = max(0, ready - startup_ns)
        self.absent_until[service, late.replica] = began
        self.startups.append(Startup(service, late.replica, began, ready - began))

    def _end(self, request: Request, outcome: str, at_ns: int) -> None:
        self.ended += 1
        request.outcome = outcome
        request.ended_ns = at_ns
        self.finished.append(request)
