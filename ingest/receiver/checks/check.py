"""Checks one OTLP body in protobuf, and makes of it one that the store takes whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from tailtrace.errors import Rejected
from tailtrace.ingest.receiver.checks.layout import LAYOUTS
from tailtrace.ingest.receiver.checks.mend import mend
from tailtrace.ingest.receiver.checks.reasons import reason_for
from tailtrace.ingest.receiver.checks.scan import REJECTIONS, Edit, Fault, scan
from tailtrace.ingest.receiver.checks.wire import WireError
from tailtrace.ingest.receiver.limits import CLOCK_SKEW_NS, Limits

CheckedSignal = Literal["traces", "metrics", "logs"]

_FAULTS: Final = {
    Fault.VARINT: "a number that does not end",
    Fault.TAG: "an impossible field number",
    Fault.GROUP: "a group or an unknown wire type, which OTLP does not use",
    Fault.TRUNCATED: "a field longer than the message it is in",
    Fault.WIRE_TYPE: "a field of OTLP with a wire type that is not its own",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """A body fit for the journal: `body` is the very object received when nothing had to be changed."""

    body: bytes
    items: int
    """Spans, data points or log records that are left in the body."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Items cut out, by reason."""
    mended: Counter[str] = field(default_factory=Counter)
    """Parts of accepted items that were changed, by kind."""
    first_reason: str = ""
    """Why the first rejected item was, naming it."""


def check(signal: CheckedSignal, body: bytes, limits: Limits, now_unix_ns: int) -> Checked:
    """What of the body is accepted. Raises Rejected when it cannot be read at all."""
    layout = LAYOUTS[signal]
    bounds = np.array(
        (
            limits.earliest_unix_ns(now_unix_ns),
            now_unix_ns + CLOCK_SKEW_NS,
            limits.name_bytes,
            limits.key_bytes,
            limits.value_bytes,
            limits.attributes,
            limits.events,
            limits.links,
        ),
        np.int64,
    )
    fault, offset, items, found = scan(
        np.frombuffer(body, np.uint8), layout.wire, layout.child, layout.rule, layout.kind, layout.single, bounds
    )
    if fault:
        raise Rejected(f"not an OTLP export request: {_FAULTS[Fault(fault)]}, at byte {offset} of {len(body)}")
    if not len(found):
        return Checked(body, int(items))
    edits: list[tuple[int, int, int]] = [(start, end, edit) for start, end, edit in found.tolist()]
    rejected = Counter(Edit(edit).name.lower() for _, _, edit in edits if edit < REJECTIONS)
    first_reason = ""
    try:
        if rejected:
            start, end, edit = next(each for each in edits if each[2] < REJECTIONS)
            first_reason = reason_for(Edit(edit), signal, body[start:end], now_unix_ns, limits)
        mended_body, mended = mend(body, edits, limits)
    except WireError as error:
        raise Rejected(f"not an OTLP export request: a nested attribute value is no protobuf ({error})") from error
    return Checked(mended_body, int(items) - rejected.total(), rejected, mended, first_reason)


def warm_up() -> None:
    """Loads the compiled scan, so that the first request does not wait for it."""
    for signal in LAYOUTS:
        check(signal, b"", Limits(), 0)
