"""One request's record, and the scopes that spans hang on.

A mark is a clock read and a list write. Nothing here encodes, sends or blocks; the background thread does that after
`finish`. A scope is what a new span takes its parent from: a request's record, a running stage, or a caller elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from tailtrace.instrumentation import clock, ids
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.otlp import SERVER
from tailtrace.instrumentation.tokens import TokenMarks, TokenTimes

Outcome = Literal["ok", "error", "cancelled", "timeout", "rejected"]

MAX_STAGES: Final = 512
MAX_ATTRIBUTES: Final = 64
MAX_TEXT: Final = 1024
FOLD_FROM: Final = 4096

# Set without their prefix; any other name is sent as it is.
REQUEST_KEYS: Final = frozenset(
    {"request_id", "engine_request_id", "attempts", "n", "tenant", "route", "client_rtt_ns", "tokens_source"}
)

# Where finished records and late stages go; the runtime puts its own in. Nothing is kept while none runs.
submit: Callable[[Any], None] = lambda item: None  # noqa: E731
count_loss: Callable[[str, int], None] = lambda reason, spans: None  # noqa: E731

# Records that hold token times, so that the background thread can fold those of endless streams.
streaming_now: dict[int, Record] = {}

# What stands in `engine` of a new record; an engine's hooks put their own in.
engine_of_new: Any = None


class Remote:
    """A caller elsewhere: another process, thread or library."""

    __slots__ = ("sampled", "span_id", "trace_id", "trace_state")
    record: None = None
    end_ns: int = 0

    def __init__(self, trace_id: bytes, span_id: bytes, sampled: bool = True, trace_state: str = "") -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.sampled = sampled
        self.trace_state = trace_state


class PlainRecordBase:
    """What a record keeps, and how it begins. The defaults stand on the class, since most are never set."""

    parent_span_id = b""
    trace_state = ""
    sampled = True
    weight = 1
    end_ns = 0
    outcome: Outcome = "ok"
    error = ""
    folded: TokenTimes | None = None
    first_ns = 0
    answer_ns = 0
    streaming: bool | None = None
    # The last few bodies of a stream: the background thread reads the usage from them and drops them.
    tail: Any = None
    # Prompt and output, where recording them is switched on (content.Gathered).
    content: Any = None
    # Waits in `send` for the client, as pairs of marks.
    waits: list[tuple[int, int]] | None = None
    # What an engine's hooks know of this request; `close(record, end_ns)` is called once, before it is handed over.
    engine: Any = None

    def __init__(
        self,
        name: str,
        kind: int = SERVER,
        parent: Scope | None = None,
        sample: int = 1,
        start_ns: int = 0,
    ) -> None:
        self.start_ns = start_ns or clock.now_ns()
        self.name = name
        self.kind = kind
        self.span_id = ids.span_id()
        if parent is None:
            self.trace_id = ids.trace_id()
            if sample != 1:
                self.sampled = chosen(self.trace_id, sample)
                self.weight = sample
        else:
            self.trace_id = parent.trace_id
            self.parent_span_id = parent.span_id
            self.sampled = parent.sampled
            state = parent.trace_state
            if state:
                self.trace_state = state
                self.weight = weight_of(state)
        self.attributes: dict[str, Any] = {}
        self.stages: list[Stage] = []
        self.times = TokenMarks()
        if engine_of_new is not None:
            self.engine = engine_of_new


def chosen(trace_id: bytes, sample: int) -> bool:
    """Whether one-in-`sample` sampling keeps this trace; the same answer in every process (0 keeps none)."""
    return sample > 0 and int.from_bytes(trace_id[-7:], "big") * sample < 1 << 56


def weight_of(trace_state: str) -> int:
    """How many requests a sampled one stands for: the `tailtrace=N` member of a tracestate, 1 where there is none."""
    for member in trace_state.split(","):
        name, _, value = member.strip().partition("=")
        if name == "tailtrace" and value.isdecimal():
            return max(1, int(value[:9]))
    return 1


if TYPE_CHECKING or native is None:
    RecordBase = PlainRecordBase
else:
    native.use_requests(ids.random_bits, chosen, weight_of, globals())
    RecordBase = native.RecordBase


class Record(RecordBase):
    """One request as seen by this process. Times are marks of `clock.now_ns`."""

    __slots__ = ()

    @property
    def record(self) -> Record:
        return self

    def set(self, name: str, value: Any) -> None:
        """An attribute of the request span; our own names without prefix, conventions with theirs (`gen_ai.…`)."""
        if len(self.attributes) < MAX_ATTRIBUTES and value is not None:
            if isinstance(value, str) and len(value) > MAX_TEXT:
                value = value[:MAX_TEXT]
            self.attributes[f"tailtrace.{name}" if name in REQUEST_KEYS else name] = value

    def mark(self, name: str, start_ns: int, end_ns: int, **attributes: Any) -> None:
        """A stage that ran from one mark of `clock.now_ns` to another."""
        if not self.sampled:
            return
        stage = Stage(name, attributes)
        stage.parent = self
        stage.start_ns = start_ns
        stage.end_ns = end_ns if end_ns > start_ns else start_ns
        if self.end_ns or len(self.stages) >= MAX_STAGES:
            self.add(stage)
        else:
            self.stages.append(stage)

    def add(self, stage: Stage) -> None:
        """Take a finished stage in. One that ends after its request is sent alone, one over the limit is counted."""
        if not self.sampled:
            return
        if self.end_ns:
            submit(stage)
        elif len(self.stages) < MAX_STAGES:
            self.stages.append(stage)
        else:
            count_loss("stages", 1)

    def token(self, at_ns: int = 0) -> None:
        """A chunk with generated tokens came at `at_ns` (now, where 0)."""
        if not self.first_ns:
            self.begin_tokens(at_ns or clock.now_ns())
        else:
            self.times.append(at_ns or clock.now_ns())

    def token_marker(self) -> Callable[[], None]:
        """For loops that count nanoseconds: `token = record.token_marker()` at the first chunk, whose mark it makes
        itself, then `token()` at each later one.
        """
        self.token()
        return self.times.mark

    def begin_tokens(self, first_ns: int) -> None:
        """The first token; the marks of later ones are appended to `times`."""
        self.first_ns = first_ns
        self.times.append(first_ns)
        self.streaming = True
        streaming_now[id(self)] = self

    def fold(self) -> None:
        """Fold all but the newest marks of a long stream. Called by the background thread while marks are appended."""
        if len(self.times) >= FOLD_FROM and not self.end_ns:
            folded = self.folded or TokenTimes()
            folded.fold(self.times.take(FOLD_FROM // 2))
            self.folded = folded

    def finish(self, outcome: Outcome = "ok", end_ns: int = 0, error: str = "") -> None:
        """The request is over. Only the first call counts."""
        if self.end_ns:
            return
        end_ns = max(end_ns or clock.now_ns(), self.start_ns)
        if self.engine is not None:
            self.engine.close(self, end_ns)
        self.end_ns = end_ns
        self.outcome = outcome
        self.error = error
        if self.first_ns:
            streaming_now.pop(id(self), None)
        if self.sampled:
            submit(self)


class PlainStageBase:
    """What a stage keeps, and its two marks. The defaults stand on the class, since most are never set."""

    parent: Scope | None = None
    start_ns = 0
    end_ns = 0
    error = ""
    # Its span id, once somebody has asked for it.
    own_id = b""
    # Trace id of a stage that has no request and no caller, made when first asked for.
    lone_id = b""
    _token: Any = None

    def __init__(self, name: str, attributes: dict[str, Any] | None = None) -> None:
        self.name = name
        self.attributes = attributes

    def __enter__(self) -> Self:
        parent = CURRENT.get()
        if parent is not None and parent.end_ns:
            parent = live(parent)
        self.parent = parent
        self._token = CURRENT.set(self)  # type: ignore[arg-type]
        self.start_ns = clock.now_ns()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.end_ns = clock.now_ns()
        try:
            CURRENT.reset(self._token)
        except ValueError:
            # Ended in another context (a generator closed by another task): the first one's value is skipped by `live`.
            pass
        if kind is not None and kind is not GeneratorExit:
            self.error = kind.__name__
        record = self.parent if type(self.parent) is Record else None
        if record is None or record.end_ns or len(record.stages) >= MAX_STAGES:
            self.deliver()
        else:
            record.stages.append(self)  # type: ignore[arg-type]

    def deliver(self) -> None:
        raise NotImplementedError


if TYPE_CHECKING or native is None:
    StageBase = PlainStageBase
else:
    StageBase = native.StageBase


class Stage(StageBase):
    """A named part of a request; a context manager for plain and async code alike, never to be entered twice."""

    __slots__ = ()

    @property
    def record(self) -> Record | None:
        return self.parent.record if self.parent is not None else None

    @property
    def trace_id(self) -> bytes:
        if self.parent is not None:
            return self.parent.trace_id
        self.lone_id = self.lone_id or ids.trace_id()
        return self.lone_id

    @property
    def span_id(self) -> bytes:
        self.own_id = self.own_id or ids.span_id()
        return self.own_id

    @property
    def sampled(self) -> bool:
        return self.parent is None or self.parent.sampled

    @property
    def trace_state(self) -> str:
        return self.parent.trace_state if self.parent is not None else ""

    def set(self, name: str, value: Any) -> None:
        """An attribute of this stage's span."""
        if self.attributes is None:
            self.attributes = {}
        if len(self.attributes) < MAX_ATTRIBUTES:
            self.attributes[name] = value[:MAX_TEXT] if isinstance(value, str) else value

    def deliver(self) -> None:
        """Give this finished stage to its request, or send it alone."""
        record = self.record
        if record is not None:
            record.add(self)
        elif self.sampled:
            submit(self)

    async def __aenter__(self) -> Stage:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.__exit__(kind, error, trace)


Scope = Record | Stage | Remote

CURRENT: ContextVar[Scope | None] = ContextVar("tailtrace_scope", default=None)

if native is not None:
    native.use_scopes(CURRENT, Record, streaming_now)


def live(scope: Scope | None) -> Scope | None:
    """The nearest scope around `scope` that is not a finished stage."""
    while type(scope) is Stage and scope.end_ns:
        scope = scope.parent
    return scope
