"""Answers in the words of OTLP: partial success, and google.rpc.Status for what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from tailtrace.ingest.receiver.checks.wire import length_field, varint_field

_REJECTED_FIELD: Final = {
    "traces": "rejectedSpans",
    "metrics": "rejectedDataPoints",
    "logs": "rejectedLogRecords",
}

_RPC_CODES: Final = {400: 3, 401: 16, 404: 12, 405: 12, 408: 4, 413: 8, 415: 3, 429: 8, 500: 13, 501: 12, 503: 14}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one body: how many of its items were rejected, and why the first was."""

    rejected: int = 0
    reason: str = ""


def success(signal: str, outcome: Outcome, *, json: bool) -> bytes:
    """The body of an export response; empty where every item was accepted."""
    if not outcome.rejected:
        return b"{}" if json else b""
    if json:
        partial = {_REJECTED_FIELD[signal]: str(outcome.rejected), "errorMessage": outcome.reason}
        return orjson.dumps({"partialSuccess": partial})
    reason = outcome.reason.encode("utf-8", "replace")
    return length_field(1, varint_field(1, outcome.rejected) + length_field(2, reason))


def status(http_code: int, reason: str, *, json: bool) -> bytes:
    """A google.rpc.Status for an HTTP answer that is no success."""
    code = _RPC_CODES[http_code]
    return orjson.dumps({"code": code, "message": reason}) if json else rpc_status(code, reason)


def rpc_status(code: int, reason: str, retry_after_s: int = 0) -> bytes:
    """A google.rpc.Status in protobuf; with a RetryInfo, which tells an OTLP client that and when it may retry."""
    message = varint_field(1, code) + length_field(2, reason.encode("utf-8", "replace"))
    if retry_after_s:
        retry_info = length_field(1, varint_field(1, retry_after_s))
        url = b"type.googleapis.com/google.rpc.RetryInfo"
        message += length_field(3, length_field(1, url) + length_field(2, retry_info))
    return message
