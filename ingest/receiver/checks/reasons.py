"""Says in words why an item was rejected, so that its sender can mend the cause."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from tailtrace.ingest.receiver.checks.scan import Edit
from tailtrace.ingest.receiver.checks.wire import FIXED64, LENGTH, fields
from tailtrace.ingest.receiver.limits import Limits

_UNITS = (("seconds", 10**9), ("milliseconds", 10**6), ("microseconds", 10**3))


def reason_for(edit: Edit, signal: str, item: bytes, now_unix_ns: int, limits: Limits) -> str:
    """The reason for a span, data point or log record, given as the field that holds it; a span is named by its id."""
    _, _, _, payload, stop = next(fields(item, 0, len(item)))
    texts: dict[int, bytes] = {}
    times: dict[int, int] = {}
    for number, wire, _, low, high in fields(item, payload, stop):
        if wire == LENGTH:
            texts[number] = item[low:high]
        elif wire == FIXED64:
            times[number] = struct.unpack_from("<Q", item, low)[0]
    earliest = limits.earliest_unix_ns(now_unix_ns)
    if signal == "metrics":
        if edit is Edit.TWO_VALUES:
            return "data point: holds more than one value"
        return f"data point: time_unix_nano {_time(times.get(3, 0), now_unix_ns, earliest)}"
    if signal == "logs":
        if edit is Edit.TWO_VALUES:
            return "log record: holds more than one body"
        which = "time_unix_nano" if times.get(1) else "observed_time_unix_nano"
        return f"log record: {which} {_time(times.get(1) or times.get(11, 0), now_unix_ns, earliest)}"
    trace_id, span_id = texts.get(1, b""), texts.get(2, b"")
    who = f"span {span_id[:32].hex() or '(no id)'} ({texts.get(5, b'')[:64].decode('utf-8', 'replace')!r})"
    match edit:
        case Edit.BAD_TRACE_ID:
            return f"{who}: {_identifier('trace_id', trace_id, 16)}"
        case Edit.BAD_SPAN_ID:
            return f"{who}: {_identifier('span_id', span_id, 8)}"
        case Edit.END_IN_FUTURE:
            return f"{who}: end_time_unix_nano {_time(times.get(8, 0), now_unix_ns, earliest)}"
        case _:
            return f"{who}: start_time_unix_nano {_time(times.get(7, 0), now_unix_ns, earliest)}"


def _identifier(name: str, value: bytes, length: int) -> str:
    if len(value) != length:
        shown = f" ({len(value)} is the length of its hex text: send the bytes)" if len(value) == 2 * length else ""
        return f"{name} has {len(value)} bytes, expected {length}{shown}"
    return f"{name} is all zeros"


def _time(value: int, now_unix_ns: int, earliest_unix_ns: int) -> str:
    """What is wrong with a time, and the unit it seems to be in."""
    for unit, factor in _UNITS:
        # Within five years of now, read in that unit: nobody means 1970 by it.
        if abs(value * factor - now_unix_ns) < 5 * 365 * 86_400 * 10**9:
            return f"is {value}: looks like {unit}, expected nanoseconds since 1970"
    if value == 0:
        return "is missing or 0"
    if value > now_unix_ns:
        here = _date(now_unix_ns)
        return f"is {_date(value)}, in the future by the receiver's clock ({here}); accepted up to 10 minutes ahead"
    return f"is {_date(value)}; accepted from {_date(earliest_unix_ns)} on"


def _date(unix_ns: int) -> str:
    try:
        return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(unix_ns)
