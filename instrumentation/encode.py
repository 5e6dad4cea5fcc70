"""From finished records, stages and steps to the bytes of their spans (wire contract: docs/instrumentation.md)."""

from __future__ import annotations

from typing import Any, Final

from tailtrace.instrumentation import ids, sse
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.otlp import (
    INTERNAL,
    STATUS_ERROR,
    attribute,
    encode_attributes,
    encode_span,
    encode_span_fields,
    encode_status,
    span_attributes,
    span_head,
    span_identity,
)
from tailtrace.instrumentation.record import Record, Stage
from tailtrace.instrumentation.tokens import TokenMarks, TokenTimes
from tailtrace.stages import BY_NAME

_MAX_STAGE_NAMES: Final = 2048
_TIME_MAX: Final = (1 << 64) - 1

_stage_heads: dict[str, bytes] = {}


def stage_head(name: str) -> bytes:
    """Name, kind and stage of a stage's span. A name outside the vocabulary is a `custom` stage of that name."""
    found = _stage_heads.get(name)
    if found is None:
        if name in BY_NAME and name != "custom":
            attributes = {"tailtrace.stage": name}
        else:
            attributes = {"tailtrace.stage": "custom", "tailtrace.stage_name": name}
        found = span_head(name, INTERNAL) + encode_attributes(attributes)
        if len(_stage_heads) < _MAX_STAGE_NAMES:
            _stage_heads[name] = found
    return found


def encode_stage(stage: Stage, identity: bytes, span_id: bytes, anchor_ns: int) -> bytes:
    """One stage's span as a repeated field of ScopeSpans."""
    rest = _stage_heads.get(stage.name) or stage_head(stage.name)
    if stage.attributes:
        rest += span_attributes(stage.attributes)
    if stage.error:
        rest += encode_status(STATUS_ERROR, stage.error)
    return encode_span_fields(identity, span_id, stage.start_ns + anchor_ns, stage.end_ns + anchor_ns, rest)


def encode_lone_stage(stage: Stage, anchor_ns: int) -> bytes:
    """A stage that is not part of a record here: its caller is elsewhere, or its request has been sent already."""
    parent = stage.parent
    identity = span_identity(stage.trace_id, parent.span_id if parent is not None else b"")
    return encode_stage(stage, identity, stage.span_id, anchor_ns)


def encode_failure(message: str) -> bytes:
    """The status of a span that failed."""
    return encode_status(STATUS_ERROR, message)


def encode_record(record: Record, anchor_ns: int) -> bytes:
    """The request's span and those of its stages. The record's marks and bodies are let go."""
    if native is not None:
        encoded: bytes | None = native.encode_record(record, anchor_ns)
        if encoded is not None:
            return encoded
    return plain_encode_record(record, anchor_ns)


def plain_encode_record(record: Record, anchor_ns: int) -> bytes:
    """The same in Python, and for records of every kind."""
    head = span_head(record.name, record.kind)
    attributes = request_attributes(record)
    status = encode_failure(record.error) if record.outcome == "error" or record.outcome == "timeout" else b""
    encoded = _encode(record, head, attributes, status, ids.span_id_block(len(record.stages)), anchor_ns)
    # A stage knows its record: without this cut, each request would wait for the cycle collector.
    record.stages = []
    return encoded


def encode_request(
    record: Record, head: bytes, attributes: dict[str, Any], status: bytes, fresh_ids: bytes, anchor_ns: int
) -> bytes:
    """The spans of a record, whose own fields are given; `fresh_ids` holds 8 bytes for each of its stages."""
    rest = head + span_attributes(attributes) + status
    trace_id = record.trace_id
    identity = span_identity(trace_id, record.parent_span_id)
    spans = [encode_span_fields(identity, record.span_id, record.start_ns + anchor_ns, record.end_ns + anchor_ns, rest)]
    below = span_identity(trace_id, record.span_id)
    # A stage that has children gets its id before it is written, whichever of them ended first.
    for stage in record.stages:
        if type(stage.parent) is Stage:
            _ = stage.parent.span_id
    for at, stage in enumerate(record.stages[: len(fresh_ids) // 8]):
        parent = stage.parent
        # An id that a child or a callee has seen stays; most stages have had no need for one.
        own = stage.own_id or fresh_ids[8 * at : 8 * at + 8]
        inside = below if parent is record else span_identity(trace_id, parent.span_id if parent else b"")
        spans.append(encode_stage(stage, inside, own, anchor_ns))
    return b"".join(spans)


if native is not None:
    native.use_encoders(_stage_heads, stage_head, attribute, encode_failure, ids.span_id_block)
_encode: Final = encode_request if native is None else native.encode_request


def request_attributes(record: Record) -> dict[str, Any]:
    """All attributes of the request's span."""
    attributes: dict[str, Any] = {"tailtrace.request": True, "tailtrace.outcome": record.outcome}
    if record.tail is not None:
        _read_tail(record)
    if record.streaming is not None:
        attributes["tailtrace.streaming"] = record.streaming
    if record.first_ns and record.streaming:
        start = record.start_ns
        times = record.folded or TokenTimes()
        times.fold(record.times)
        record.times = TokenMarks()
        attributes["tailtrace.ttft_ns"] = record.first_ns - start
        if record.answer_ns:
            attributes["tailtrace.ttft_answer_ns"] = record.answer_ns - start
        attributes["tailtrace.last_token_ns"] = times.last_ns - start
        if times.counts:
            attributes["tailtrace.gaps"] = times.gaps_text()
        if times.stalls:
            attributes["tailtrace.stalls"] = times.stalls_text(start)
    if record.weight > 1:
        attributes["tailtrace.sample_weight"] = record.weight
    if record.error:
        attributes["error.type"] = record.error
    if record.attributes:
        attributes.update(record.attributes)
    if record.content is not None:
        attributes.update(record.content.attributes())
        record.content = None
    return attributes


def _read_tail(record: Record) -> None:
    """Usage, model and samples from the last bodies; frames after the last token are not tokens."""
    tail = record.tail
    record.tail = None
    times = record.times
    found = record.attributes
    trailing = record.first_ns and record.outcome == "ok"
    if native is not None:
        # Most streams end without a word of all that.
        empty = native.plain_tail(tail, "gen_ai.response.model" in found)
        if empty >= 0:
            if trailing:
                for _ in range(min(empty, len(times) - 1)):
                    times.pop()
            return
    bodies: list[bytes] = [_body(message) for message in tail]
    if trailing:
        for body in reversed(bodies):
            if len(times) <= 1 or (body and sse.carries_token(body)):
                break
            times.pop()
    joined = b"\n".join(bodies)
    usage = sse.read_usage(joined)
    if usage:
        found.update(usage)
        found["tailtrace.tokens_source"] = "usage"
    if record.first_ns:
        n = sse.samples(joined)
        if n > 1:
            found.setdefault("tailtrace.n", n)
    if b'"model"' in joined and "gen_ai.response.model" not in found:
        model = sse.read_model(joined)
        if model:
            found["gen_ai.response.model"] = model


def _body(message: Any) -> bytes:
    """The bytes of an ASGI message, or of a plain body."""
    body = message.get("body", b"") if isinstance(message, dict) else message
    return body if isinstance(body, bytes) else bytes(body)


def encode_item(item: Any, anchor_ns: int) -> bytes:
    """Whatever the buffer holds: a record, a lone stage, or a span of another library."""
    if type(item) is Record:
        return encode_record(item, anchor_ns)
    if type(item) is Stage:
        return encode_lone_stage(item, anchor_ns)
    # An engine's hooks keep bare numbers; their spans are only made here.
    encode = getattr(item, "encode", None)
    return encode_span(item) if encode is None else encode(anchor_ns)


def scope_of(item: Any) -> str:
    """The scope that an item's spans are sent under."""
    kind = type(item)
    if kind is Record or kind is Stage:
        return "tailtrace"
    return getattr(item, "scope", "tailtrace")
