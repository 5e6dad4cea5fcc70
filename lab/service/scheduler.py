"""A continuous-batching scheduler.

First come first served, chunked prefill, a paged KV budget, preemption by recompute, a prefix cache.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Service

BLOCK_TOKENS = 16


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine; it decodes once its `computed` tokens, held in `blocks`, reach `prompt`."""

    request: Request
    prompt: int  # tokens to compute before the next token: the input, and what was produced before a preemption
    target: int
    computed: int = 0
    produced: int = 0
    blocks: int = 0
    preempted_ns: int = -1
    gone: bool = False  # aborted while a step that holds it runs

    @property
    def decoding(self) -> bool:
        return self.computed >= self.prompt


@dataclass(slots=True)
class Batch:
    """What one step computes: chunks of prompts, and one token for each decoding sequence."""

    prefill: list[tuple[Sequence, int]] = field(default_factory=list)
    decodes: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    context_tokens: int = 0

    @property
    def prefill_tokens(self) -> int:
        return sum(tokens for _, tokens in self.prefill)

    def __bool__(self) -> bool:
        return bool(self.prefill or self.decodes)


class Scheduler:
    """The waiting and running sequences of one engine and its KV blocks; knows only the time it is told."""

    def __init__(self, service: Service) -> None:
        self.max_batch = service.max_batch
        self.kv_blocks = service.kv_blocks
        self.chunk_tokens = service.chunk_tokens
        self.admit_limit = service.kv_blocks  # blocks that admission may fill
        self.grow_limit = service.kv_blocks  # blocks that running sequences may fill
        self.reserve_output = False  # take the blocks of the whole answer at admission, instead of preempting later
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.used_blocks = 0
        self.preemptions = 0
        self._prefixes: OrderedDict[int, int] = OrderedDict()
        self._prefix_groups = service.prefix_groups

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that finished or was aborted; its blocks are free."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.gone = True
        self._free(sequence)

    def clear(self) -> list[Sequence]:
        """Drop everything, as a process that dies does; gives the sequences that were lost, oldest first."""
        lost = [*self.running, *self.waiting]
        self.running.clear()
        self.waiting.clear()
        self._prefixes.clear()
        for sequence in lost:
            sequence.gone = True
            self._free(sequence)
        return lost

    def schedule(self, now_ns: int) -> Batch:
        """The next step's work: decodes first, then prompts already begun, then waiting ones within the budgets."""
        batch = Batch()
        budget = self.chunk_tokens
        for sequence in list(self.running):
            if (
                sequence.decoding
                and sequence in self.running
                and self._grow(sequence, sequence.computed + 1, batch, now_ns)
            ):
                batch.decodes.append(sequence)
                batch.context_tokens += sequence.computed
                budget -= 1
        if batch.preempted:
            batch.decodes = [sequence for sequence in batch.decodes if sequence in self.running]
        for sequence in list(self.running):
            if budget > 0 and not sequence.decoding:
                budget -= self._chunk(sequence, budget, batch)
        while self.waiting and budget > 0 and len(self.running) < self.max_batch and not batch.preempted:
            sequence = self.waiting[0]
            if not self._admit(sequence, now_ns):
                break
            self.waiting.popleft()
            self.running.append(sequence)
            budget -= self._chunk(sequence, budget, batch)
        return batch

    def horizon(self, batch: Batch) -> int:
        """How many more steps would be exactly like this pure decode batch: until one finishes or blocks run out."""
        left = min(sequence.target - sequence.produced for sequence in batch.decodes)
        # Over 16 m steps a sequence takes exactly m more blocks, at any place in its last one.
        free = BLOCK_TOKENS * ((self.grow_limit - self.used_blocks) // len(batch.decodes))
        slack = min(BLOCK_TOKENS * sequence.blocks - sequence.computed for sequence in batch.decodes)
        return max(1, min(left, max(free, slack)))

    def advance(self, batch: Batch, steps: int) -> None:
        """Account for `steps` steps of the batch that were computed."""
        for sequence, tokens in batch.prefill:
            if sequence.gone:
                continue
            sequence.computed += tokens
            if sequence.decoding:
                sequence.produced += 1
        for sequence in batch.decodes:
            if sequence.gone:
                continue
            sequence.computed += steps
            sequence.produced += steps
            grown = (
                min(blocks_for(sequence.computed), sequence.blocks + self.kv_blocks - self.used_blocks)
                - sequence.blocks
            )
            if grown > 0:
                self.used_blocks += grown
                sequence.blocks += grown

    @property
    def kv_usage(self) -> float:
        return min(1.0, self.used_blocks / min(self.admit_limit, self.grow_limit))

    def waiting_for_memory(self) -> bool:
        """Whether the head of the queue waits for KV blocks rather than for a place in the batch."""
        return bool(self.waiting) and len(self.running) < self.max_batch

    def _admit(self, sequence: Sequence, now_ns: int) -> bool:
        request = sequence.request
        need = blocks_for(sequence.prompt + (sequence.target - sequence.produced if self.reserve_output else 1))
        # A prompt larger than the whole cache would wait for ever: an empty engine takes it, as it is.
        if self.used_blocks + need > self.admit_limit and self.running:
            return False
        if sequence.preempted_ns >= 0:
            request.preemptions.append((sequence.preempted_ns, now_ns))
            sequence.preempted_ns = -1
        if request.scheduled_ns < 0:
            request.scheduled_ns = now_ns
            request.cached_tokens = self._lookup(request)
        sequence.computed = min(request.cached_tokens, sequence.prompt - 1)
        sequence.blocks = min(need, self.kv_blocks - self.used_blocks)
        self.used_blocks += sequence.blocks
        return True

    def _chunk(self, sequence: Sequence, budget: int, batch: Batch) -> int:
        tokens = min(sequence.prompt - sequence.computed, budget)
        batch.prefill.append((sequence, tokens))
        return tokens

    def _grow(self, sequence: Sequence, tokens: int, batch: Batch, now_ns: int) -> bool:
        """Make room for one more token, preempting the youngest when there is none; False if that was this one."""
        while blocks_for(tokens) > sequence.blocks:
            if self.used_blocks < self.grow_limit:
                sequence.blocks += 1
                self.used_blocks += 1
                continue
            victim = self.running[-1]
            if victim is sequence and len(self.running) == 1:
                return True  # alone and still too large: it goes on in the blocks it has
            self._preempt(victim, now_ns)
            batch.preempted.append(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence, now_ns: int) -> None:
        self.preemptions += 1
        self.running.remove(sequence)
        self._free(sequence)
        sequence.preempted_ns = now_ns
        sequence.prompt = sequence.request.input_tokens + sequence.produced
        sequence.computed = 0
        self.waiting.appendleft(sequence)

    def _free(self, sequence: Sequence) -> None:
        self.used_blocks -= sequence.blocks
        sequence.blocks = 0

    def _lookup(self, request: Request) -> int:
        """Tokens of the prompt found in the prefix cache: the least recently used group goes when it is full."""
        if not request.prefix_tokens:
            return 0
        found = self._prefixes.pop(request.prefix_group, 0)
        self._prefixes[request.prefix_group] = max(found, request.prefix_tokens)
        if len(self._prefixes) > self._prefix_groups:
            self._prefixes.popitem(last=False)
        return min(found, request.prefix_tokens)
