"""Applies the edits of a scan to a body: cuts, shortens and rewrites fields, and renews the lengths around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tailtrace.ingest.receiver.checks.scan import REJECTIONS, Edit
from tailtrace.ingest.receiver.checks.values import as_json
from tailtrace.ingest.receiver.checks.wire import fields, length_field, read_varint, varint
from tailtrace.ingest.receiver.limits import Limits

_DROPPED = frozenset(
    (
        Edit.PARENT_DROPPED,
        Edit.LINK_DROPPED,
        Edit.ATTRIBUTE_DROPPED,
        Edit.EVENT_DROPPED,
        Edit.LINK_OVER_LIMIT,
        Edit.ENUM_DROPPED,
        Edit.ID_DROPPED,
        Edit.EMPTY_LIST_DROPPED,
    )
)


def mend(body: bytes, edits: Sequence[tuple[int, int, int]], limits: Limits) -> tuple[bytes, Counter[str]]:
    """The body with its edits applied, and how many of each kind there were.

    `edits` are (start of the field's tag, its end, Edit), in order, never overlapping. Raises WireError for a nested
    value that is no protobuf.
    """
    mender = _Mender(body, edits, limits)
    return mender.rebuilt(0, len(body)), mender.done


def shortened(text: bytes, limit: int) -> bytes:
    """At most `limit` bytes of text, cut between characters, ending in a mark that says how long it was."""
    if len(text) <= limit:
        return text
    mark = f"...[truncated, was {len(text)} bytes]".encode()
    keep = max(0, limit - len(mark))
    while keep > 0 and text[keep] & 0xC0 == 0x80:
        keep -= 1
    return text[:keep] + mark


class _Mender:
    def __init__(self, body: bytes, edits: Sequence[tuple[int, int, int]], limits: Limits) -> None:
        self._body = body
        self._edits = edits
        self._limits = limits
        self._next = 0
        self.done: Counter[str] = Counter()

    def rebuilt(self, at: int, end: int) -> bytes:
        """The message in body[at:end] with the edits that lie in it applied."""
        body = self._body
        parts: list[bytes] = []
        kept = at
        for _, _, start, payload, stop in fields(body, at, end):
            if self._next == len(self._edits):
                break
            edit_start, _, edit = self._edits[self._next]
            if edit_start >= stop:
                continue
            parts.append(body[kept:start])
            kept = stop
            tag_end = read_varint(body, start, stop)[1]
            if edit_start == start:
                self._next += 1
                replaced = self._replaced(Edit(edit), payload, stop)
            else:
                replaced = self.rebuilt(payload, stop)
            if replaced is not None:
                parts += (body[start:tag_end], varint(len(replaced)), replaced)
        parts.append(body[kept:end])
        return b"".join(parts)

    def _replaced(self, edit: Edit, payload: int, stop: int) -> bytes | None:
        """The new payload of an edited field; None cuts the field."""
        if edit < REJECTIONS:
            return None
        self.done[edit.name.lower()] += 1
        if edit in _DROPPED:
            return None
        if edit is Edit.VALUE_AS_JSON:
            text, cut = as_json(self._body, payload, stop, self._limits.depth)
            if cut:
                self.done["depth_cut"] += 1
            encoded = text.encode("utf-8", "replace")
            if len(encoded) > self._limits.value_bytes:
                self.done["value_cut"] += 1
            return length_field(1, shortened(encoded, self._limits.value_bytes))
        limits = self._limits
        limit = {Edit.NAME_CUT: limits.name_bytes, Edit.KEY_CUT: limits.key_bytes}.get(edit, limits.value_bytes)
        return shortened(self._body[payload:stop], limit)
