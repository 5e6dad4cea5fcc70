"""Carrying a request's identity: W3C headers, threads, executors, queues, processes, OpenTelemetry's own context."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace
from opentelemetry.context import Context

from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.record import CURRENT, Record, Remote, Scope, live

P = ParamSpec("P")
T = TypeVar("T")

_HEX = frozenset(b"0123456789abcdef")
# The length of a `traceparent` of version 00.
_TRACEPARENT: Final = 55


def parse_traceparent(text: bytes, trace_state: str = "") -> Remote | None:
    """The caller that a `traceparent` names; None where it is malformed (W3C Trace Context, section 3.2)."""
    text = text.strip()
    if len(text) < _TRACEPARENT or text[2:3] != b"-" or text[35:36] != b"-" or text[52:53] != b"-":
        return None
    version, trace, span, flags = text[:2], text[3:35], text[36:52], text[53:55]
    if not _HEX.issuperset(version + trace + span + flags) or version == b"ff":
        return None
    if len(text) > _TRACEPARENT and (version == b"00" or text[55:56] != b"-"):
        return None
    trace_id, span_id = bytes.fromhex(trace.decode()), bytes.fromhex(span.decode())
    if not any(trace_id) or not any(span_id):
        return None
    return Remote(trace_id, span_id, bool(int(flags, 16) & 1), trace_state[:512])


def traceparent_of(scope: Scope) -> str:
    return f"00-{scope.trace_id.hex()}-{scope.span_id.hex()}-{'01' if scope.sampled else '00'}"


def tracestate_of(scope: Scope) -> str:
    """The scope's tracestate, with how many requests this one stands for when requests are sampled here."""
    state = scope.trace_state
    record = scope.record
    if record is not None and record.weight > 1 and not state:
        return f"tailtrace={record.weight}"
    return state


def current_scope() -> Scope | None:
    """What a new span's parent is: ours where there is one, else OpenTelemetry's current span."""
    scope = live(CURRENT.get())
    if scope is not None:
        return scope
    return otel_scope()


def otel_scope() -> Remote | None:
    """OpenTelemetry's current span, where it has one."""
    if not otel_context.get_current():
        return None
    span = otel_trace.get_current_span()
    if isinstance(span, RequestSpan):
        return Remote(span.of.trace_id, span.of.span_id, span.of.sampled, span.of.trace_state)
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return Remote(
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        context.trace_flags.sampled,
        context.trace_state.to_header(),
    )


def current_request() -> Record | None:
    """The record of the request that runs here, to add to: `current_request().set("tenant", "a")`."""
    scope = live(CURRENT.get())
    return scope.record if scope is not None else None


def extract(carrier: Mapping[str, Any] | Iterable[tuple[bytes, bytes]]) -> Remote | None:
    """The caller named by headers: a mapping, or ASGI's list of pairs. Names match in any case."""
    pairs = carrier.items() if isinstance(carrier, Mapping) else carrier
    parent = b""
    state = ""
    for name, value in pairs:
        text = name.lower() if isinstance(name, (str, bytes)) else b""
        if text in (b"traceparent", "traceparent"):
            parent = value.encode("latin-1", "replace") if isinstance(value, str) else bytes(value)
        elif text in (b"tracestate", "tracestate"):
            state = value if isinstance(value, str) else bytes(value).decode("latin-1")
    return parse_traceparent(parent, state) if parent else None


def is_sampled(headers: Mapping[str, str]) -> bool:
    """Whether the caller named by headers is recorded; of a malformed one it may say either. Quick, for where a first
    token waits: who it is can be read later."""
    text = headers.get("traceparent")
    if type(text) is str and len(text) == _TRACEPARENT:
        return text[-1] in "13579bdf"
    parent = extract(headers)
    return parent is not None and parent.sampled


def inject(carrier: MutableMapping[str, Any] | None = None) -> MutableMapping[str, Any]:
    """Put `traceparent` (and `tracestate`) of what runs here into `carrier`, or a new dict; empty when nothing runs."""
    carrier = {} if carrier is None else carrier
    scope = current_scope()
    if scope is not None:
        carrier["traceparent"] = traceparent_of(scope)
        state = tracestate_of(scope)
        if state:
            carrier["tracestate"] = state
    return carrier


class joined:  # noqa: N801 - reads as a statement: with joined(message.headers)
    """`with joined(headers):` what runs inside belongs to the caller that the headers name; plain and async alike."""

    def __init__(self, carrier: Mapping[str, Any] | Iterable[tuple[bytes, bytes]] | Scope | None) -> None:
        self._scope = carrier if carrier is None or isinstance(carrier, Scope) else extract(carrier)
        self._token: Any = None

    def __enter__(self) -> Scope | None:
        if self._scope is not None:
            self._token = CURRENT.set(self._scope)
        return self._scope

    def __exit__(self, *exc: Any) -> None:
        if self._token is not None:
            reset(self._token)
            self._token = None

    async def __aenter__(self) -> Scope | None:
        return self.__enter__()

    async def __aexit__(self, *exc: Any) -> None:
        self.__exit__(*exc)


def reset(token: contextvars.Token[Scope | None]) -> None:
    """Undo a `CURRENT.set`, also when that happened in a context that is gone."""
    try:
        CURRENT.reset(token)
    except ValueError:
        pass


def bind(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, to run elsewhere (a thread, an executor, a callback) as part of the request that is current now."""
    here = contextvars.copy_context()

    @wraps(function)
    def bound(*args: P.args, **kwargs: P.kwargs) -> T:
        # A copy each time: one context cannot be entered by two threads at once.
        return here.copy().run(function, *args, **kwargs)

    return bound


class Carried:
    """A function and the caller's headers, picklable, for executors of processes."""

    def __init__(self, function: Callable[..., Any], headers: dict[str, Any]) -> None:
        self.function = function
        self.headers = headers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with joined(self.headers):
            return self.function(*args, **kwargs)


E_ = TypeVar("E_", bound=Executor)


def wrap_executor(executor: E_) -> E_:
    """Make `submit` and `map` of this executor carry the request that is current at the call."""
    original = executor.submit
    if getattr(original, "__tailtrace__", False):
        return executor
    processes = isinstance(executor, ProcessPoolExecutor)

    def submit(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        carried = Carried(function, dict(inject())) if processes else bind(function)
        return original(carried, *args, **kwargs)

    submit.__tailtrace__ = True  # type: ignore[attr-defined]
    executor.submit = submit  # type: ignore[method-assign]
    return executor


class RequestSpan(otel_trace.NonRecordingSpan):
    """How OpenTelemetry sees our request: a span to be a child of. Its context is only built when somebody asks."""

    def __init__(self, of: Record) -> None:
        self.of = of

    def get_span_context(self) -> otel_trace.SpanContext:
        of = self.of
        state = tracestate_of(of)
        return otel_trace.SpanContext(
            int.from_bytes(of.trace_id, "big"),
            int.from_bytes(of.span_id, "big"),
            is_remote=False,
            trace_flags=otel_trace.TraceFlags(int(of.sampled)),
            trace_state=otel_trace.TraceState.from_header([state]) if state else None,
        )


# The name under which OpenTelemetry keeps its current span: the only one in a context that holds nothing else.
_SPAN_KEY = next(iter(otel_trace.set_span_in_context(otel_trace.INVALID_SPAN, Context())))


class PlainEntered:
    """A record made current, for us and for OpenTelemetry. Left in the frame that entered it."""

    __slots__ = ("_otel", "_token")

    def __init__(self, record: Record) -> None:
        self._token = CURRENT.set(record)
        # `set_span_in_context`, without its copies: this runs for every request.
        self._otel = otel_context.attach(Context({**otel_context.get_current(), _SPAN_KEY: RequestSpan(record)}))

    def leave(self) -> None:
        try:
            CURRENT.reset(self._token)
        except (ValueError, RuntimeError):
            pass
        try:
            self._otel.var.reset(self._otel)
        except (ValueError, RuntimeError):
            pass


def _otel_variable() -> Any:
    """The context variable that OpenTelemetry's context lives in; another runtime's than Python's has none."""
    token = otel_context.attach(otel_context.get_current())
    otel_context.detach(token)
    return getattr(token, "var", None)


_variable = _otel_variable()
# Whether `native.begin` and `native.Entered` can be used.
in_c: Final = native is not None and isinstance(_variable, contextvars.ContextVar)

if TYPE_CHECKING or not in_c:
    Entered = PlainEntered
else:
    native.use_context(_variable, Context, RequestSpan, _SPAN_KEY, parse_traceparent, tracestate_of)
    Entered = native.Entered
