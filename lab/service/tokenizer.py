"""A pool of tokenizer threads: first come, first served."""

from __future__ import annotations

from tailtrace.lab.clock import MICROSECOND, MILLISECOND
from tailtrace.lab.constants import Constants
from tailtrace.lab.faults import Faults
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Service


class Tokenizer:
    """One replica's pool. The wait for a thread is part of the stage."""

    def __init__(self, service: Service, replica: int, constants: Constants, faults: Faults) -> None:
        self._service, self._replica = service.name, replica
        self._constants, self._faults = constants, faults
        self._free_ns = [0] * service.tokenizer_threads

    def work_ns(self, request: Request, at_ns: int) -> int:
        """CPU time to tokenize the prompt once a thread has it."""
        c = self._constants
        time_ns = c.tokenize_fixed * MILLISECOND + c.tokenize_us_per_token * MICROSECOND * request.input_tokens
        return int(time_ns * request.spread * self._faults.value("tokenize_time", at_ns, self._service, self._replica))

    def done_ns(self, request: Request, at_ns: int) -> int:
        """When a prompt handed to the pool at `at_ns` is tokenized."""
        share = self._faults.value("tokenizer_threads", at_ns, self._service, self._replica)
        threads = max(1, int(len(self._free_ns) * min(share, 1.0)))
        thread = min(range(threads), key=self._free_ns.__getitem__)
        end = max(at_ns, self._free_ns[thread]) + self.work_ns(request, at_ns)
        self._free_ns[thread] = end
        return end
