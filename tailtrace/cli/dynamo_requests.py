"""Records of NVIDIA Dynamo's request trace (`DYN_REQUEST_TRACE`) as OTLP: one span a finished request.

The span's name is the one that the normaliser of Dynamo knows; times in the record are milliseconds. Ids come from the
record, so loading a file again changes nothing.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Any, Final

SCHEMA: Final = "dynamo.request.trace.v1"
SPAN: Final = "dynamo.request.trace"
_TEXTS: Final = {"model": "gen_ai.request.model", "request_id": "tailtrace.request_id"}
_COUNTS: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "queue_depth": "queue_depth",
}
_NUMBERS: Final = ("ttft_ms", "prefill_wait_time_ms", "prefill_time_ms", "avg_itl_ms", "kv_hit_rate")


def is_record(document: Any) -> bool:
    """A record, or one in the envelope of a sink."""
    return _unwrapped(document) is not None


def _unwrapped(document: Any) -> dict[str, Any] | None:
    if not isinstance(document, dict):
        return None
    if document.get("schema") == SCHEMA:
        return document
    return next((v for v in document.values() if isinstance(v, dict) and v.get("schema") == SCHEMA), None)


def to_otlp(document: Any) -> dict[str, Any] | None:
    """An OTLP/JSON body; None for what is no finished request, or has no time to stand at."""
    record = _unwrapped(document)
    request = record.get("request") if record else None
    if record is None or record.get("event_type", "request_end") != "request_end" or not isinstance(request, dict):
        return None
    start, total, end = (
        _number(value)
        for value in (
            request.get("request_received_ms"),
            request.get("total_time_ms"),
            record.get("event_time_unix_ms"),
        )
    )
    if start is None and end is not None and total is not None:
        start = end - total
    if start is None or (total is None and end is None):
        return None
    until = start + total if total is not None else max(end or start, start)
    identity = blake2b(f"{request.get('request_id')}/{start}".encode(), digest_size=24).hexdigest()
    span = {
        "traceId": identity[:32],
        "spanId": identity[32:],
        "name": SPAN,
        "kind": 2,
        "startTimeUnixNano": str(round(start * 1_000_000)),
        "endTimeUnixNano": str(round(until * 1_000_000)),
        "attributes": _attributes(request),
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "dynamo"}}]}
    scopes = [{"scope": {"name": "dynamo"}, "spans": [span]}]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}


def _attributes(request: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, key in _TEXTS.items():
        if isinstance(request.get(name), str):
            found.append({"key": key, "value": {"stringValue": request[name]}})
    for name, key in _COUNTS.items():
        count = _number(request.get(name))
        if count is not None and count >= 0:
            found.append({"key": key, "value": {"intValue": str(int(count))}})
    for name in _NUMBERS:
        number = _number(request.get(name))
        if number is not None:
            found.append({"key": name, "value": {"doubleValue": number}})
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value
