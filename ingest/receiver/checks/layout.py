"""Which fields of OTLP the store reads, as tables that the scan walks.

A field that is not here is skipped by the store's reader, whatever its type, and so it is by the scan. One that is
here must have its wire type, because the store would refuse the whole segment for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tailtrace.ingest.receiver.checks.wire import FIXED32, FIXED64, LENGTH, VARINT

FIELDS: Final = 16
"""Field numbers of OTLP that are stored are all below this."""


class Rule(IntEnum):
    """What the scan looks at in a field."""

    NONE = 0
    TRACE_ID = 1
    SPAN_ID = 2
    PARENT_ID = 3
    START = 4
    END = 5
    NAME = 6
    KEY = 7
    TEXT = 8
    ENUM = 9
    ATTRIBUTE = 10
    EVENT = 11
    LINK = 12
    NESTED = 13
    ARRAY = 14
    FLAG = 16
    OBSERVED = 17
    TRACE_OF = 18
    SPAN_OF = 19
    PACKED_FIXED64 = 20
    PACKED_VARINT = 21
    SIGNED32 = 22


class Kind(IntEnum):
    """What the scan does when a message ends."""

    PLAIN = 0
    SPAN = 1
    LINK = 2
    POINT = 3
    VALUE = 4
    ELEMENT = 5
    PAIR = 6
    LOG = 7


@dataclass(frozen=True, slots=True)
class Layout:
    """Tables by message and field number: wire type (-1 = not stored), message it holds (-1 = none), rule.

    `kind` is by message alone. Of the fields marked `single`, a message may hold one, once: the store refuses a second.
    """

    wire: npt.NDArray[np.int64]
    child: npt.NDArray[np.int64]
    rule: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    single: npt.NDArray[np.int64]


_Field = tuple[int, str | None, Rule]  # wire type, name of the message it holds, rule
_Messages = dict[str, tuple[Kind, dict[int, _Field]]]

_TEXT: _Field = (LENGTH, None, Rule.TEXT)
_NAME: _Field = (LENGTH, None, Rule.NAME)
_TIME: _Field = (FIXED64, None, Rule.NONE)
_BOOL: _Field = (VARINT, None, Rule.FLAG)
_ENUM: _Field = (VARINT, None, Rule.ENUM)
_ATTRIBUTE: _Field = (LENGTH, "KeyValue", Rule.ATTRIBUTE)
_NESTED: _Field = (LENGTH, None, Rule.NESTED)
_START: _Field = (FIXED64, None, Rule.START)
_FLAGS: _Field = (VARINT, None, Rule.ENUM)
_TRACE_OF: _Field = (LENGTH, None, Rule.TRACE_OF)
_SPAN_OF: _Field = (LENGTH, None, Rule.SPAN_OF)
_FIXED64S: _Field = (LENGTH, None, Rule.PACKED_FIXED64)
_VARINTS: _Field = (LENGTH, None, Rule.PACKED_VARINT)
_SIGNED32: _Field = (VARINT, None, Rule.SIGNED32)


def _message(name: str, rule: Rule = Rule.NONE) -> _Field:
    return LENGTH, name, rule


_SCALARS: dict[int, _Field] = {1: _TEXT, 2: _BOOL, 3: (VARINT, None, Rule.NONE), 4: (FIXED64, None, Rule.NONE)}

_COMMON: _Messages = {
    "Resource": (Kind.PLAIN, {1: _ATTRIBUTE}),
    "Scope": (Kind.PLAIN, {1: _NAME, 2: _NAME, 3: _ATTRIBUTE}),
    "KeyValue": (Kind.PAIR, {1: (LENGTH, None, Rule.KEY), 2: _message("AnyValue")}),
    "AnyValue": (Kind.VALUE, {**_SCALARS, 5: _message("ArrayValue", Rule.ARRAY), 6: _NESTED, 7: _NESTED}),
    "ArrayValue": (Kind.PLAIN, {1: _message("Element")}),
    "Element": (Kind.ELEMENT, {**_SCALARS, 5: _NESTED, 6: _NESTED, 7: _NESTED}),
}

_TRACES: _Messages = {
    "Request": (Kind.PLAIN, {1: _message("ResourceSpans")}),
    "ResourceSpans": (Kind.PLAIN, {1: _message("Resource"), 2: _message("ScopeSpans")}),
    "ScopeSpans": (Kind.PLAIN, {1: _message("Scope"), 2: _message("Span")}),
    "Span": (
        Kind.SPAN,
        {
            1: (LENGTH, None, Rule.TRACE_ID),
            2: (LENGTH, None, Rule.SPAN_ID),
            3: _TEXT,
            4: (LENGTH, None, Rule.PARENT_ID),
            5: _NAME,
            6: _ENUM,
            7: (FIXED64, None, Rule.START),
            8: (FIXED64, None, Rule.END),
            9: _ATTRIBUTE,
            11: _message("Event", Rule.EVENT),
            13: _message("Link", Rule.LINK),
            15: _message("Status"),
        },
    ),
    "Event": (Kind.PLAIN, {1: _TIME, 2: _NAME, 3: _ATTRIBUTE}),
    "Link": (Kind.LINK, {1: (LENGTH, None, Rule.TRACE_ID), 2: (LENGTH, None, Rule.SPAN_ID), 3: _TEXT, 4: _ATTRIBUTE}),
    "Status": (Kind.PLAIN, {2: _TEXT, 3: _ENUM}),
    **_COMMON,
}

_EXEMPLAR: _Field = (LENGTH, "Exemplar", Rule.EVENT)
_NUMBER = _TIME

_METRICS: _Messages = {
    "Request": (Kind.PLAIN, {1: _message("ResourceMetrics")}),
    "ResourceMetrics": (Kind.PLAIN, {1: _message("Resource"), 2: _message("ScopeMetrics")}),
    "ScopeMetrics": (Kind.PLAIN, {1: _message("Scope"), 2: _message("Metric")}),
    "Metric": (
        Kind.PLAIN,
        {
            1: _NAME,
            2: _TEXT,
            3: _NAME,
            5: _message("Gauge"),
            7: _message("Sum"),
            9: _message("Histogram"),
            10: _message("ExponentialHistogram"),
            11: _message("Summary"),
        },
    ),
    "Gauge": (Kind.PLAIN, {1: _message("Number")}),
    "Sum": (Kind.PLAIN, {1: _message("Number"), 2: _ENUM, 3: _BOOL}),
    "Histogram": (Kind.PLAIN, {1: _message("HistogramPoint"), 2: _ENUM}),
    "ExponentialHistogram": (Kind.PLAIN, {1: _message("ExponentialPoint"), 2: _ENUM}),
    "Summary": (Kind.PLAIN, {1: _message("SummaryPoint")}),
    "Number": (Kind.POINT, {2: _TIME, 3: _START, 4: _TIME, 5: _EXEMPLAR, 6: _TIME, 7: _ATTRIBUTE, 8: _FLAGS}),
    "HistogramPoint": (
        Kind.POINT,
        {
            2: _TIME,
            3: _START,
            4: _NUMBER,
            5: _NUMBER,
            6: _FIXED64S,
            7: _FIXED64S,
            8: _EXEMPLAR,
            9: _ATTRIBUTE,
            10: _FLAGS,
            11: _NUMBER,
            12: _NUMBER,
        },
    ),
    "ExponentialPoint": (
        Kind.POINT,
        {
            1: _ATTRIBUTE,
            2: _TIME,
            3: _START,
            4: _NUMBER,
            5: _NUMBER,
            6: _SIGNED32,
            7: _NUMBER,
            8: _message("Buckets"),
            9: _message("Buckets"),
            10: _FLAGS,
            11: _EXEMPLAR,
            12: _NUMBER,
            13: _NUMBER,
            14: _NUMBER,
        },
    ),
    "SummaryPoint": (
        Kind.POINT,
        {2: _TIME, 3: _START, 4: _NUMBER, 5: _NUMBER, 6: _message("Quantile"), 7: _ATTRIBUTE, 8: _FLAGS},
    ),
    "Buckets": (Kind.PLAIN, {1: _SIGNED32, 2: _VARINTS}),
    "Quantile": (Kind.PLAIN, {1: _NUMBER, 2: _NUMBER}),
    "Exemplar": (Kind.PAIR, {2: _TIME, 3: _NUMBER, 4: _SPAN_OF, 5: _TRACE_OF, 6: _NUMBER, 7: _ATTRIBUTE}),
    **_COMMON,
}


_LOGS: _Messages = {
    "Request": (Kind.PLAIN, {1: _message("ResourceLogs")}),
    "ResourceLogs": (Kind.PLAIN, {1: _message("Resource"), 2: _message("ScopeLogs"), 3: _NAME}),
    "ScopeLogs": (Kind.PLAIN, {1: _message("Scope"), 2: _message("LogRecord"), 3: _NAME}),
    "LogRecord": (
        Kind.LOG,
        {
            1: _START,
            2: _ENUM,
            3: _NAME,
            5: _message("AnyValue"),
            6: _ATTRIBUTE,
            8: (FIXED32, None, Rule.NONE),
            9: _TRACE_OF,
            10: _SPAN_OF,
            11: (FIXED64, None, Rule.OBSERVED),
            12: _NAME,
        },
    ),
    **_COMMON,
}

_SINGLE: dict[str, tuple[int, ...]] = {
    "AnyValue": (1, 2, 3, 4, 5, 6, 7),
    "Element": (1, 2, 3, 4, 5, 6, 7),
    "KeyValue": (2,),
    "Number": (4, 6),
    "Exemplar": (3, 6),
    "LogRecord": (5,),
}


def _tables(messages: _Messages) -> Layout:
    index = {name: position for position, name in enumerate(messages)}
    shape = (len(messages), FIELDS)
    wire = np.full(shape, -1, np.int64)
    child = np.full(shape, -1, np.int64)
    rule = np.zeros(shape, np.int64)
    kind = np.zeros(len(messages), np.int64)
    single = np.zeros(shape, np.int64)
    for name, (message_kind, fields) in messages.items():
        kind[index[name]] = message_kind
        for number, (wire_type, holds, field_rule) in fields.items():
            wire[index[name], number] = wire_type
            child[index[name], number] = -1 if holds is None else index[holds]
            rule[index[name], number] = field_rule
    for name, numbers in _SINGLE.items():
        if name in index:
            single[index[name], list(numbers)] = 1
    return Layout(wire, child, rule, kind, single)


LAYOUTS: Final[dict[Any, Layout]] = {
    "traces": _tables(_TRACES),
    "metrics": _tables(_METRICS),
    "logs": _tables(_LOGS),
}
"""By signal. Message 0 is the export request."""
