"""Sending one message: a signed JSON webhook, or any service that apprise speaks to."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from tailtrace.analytics.alerting.message import text_of
from tailtrace.analytics.alerting.rules import Channel

TIMEOUT_S: Final = 10.0
_RETRY: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Sent:
    """`ok`; `again`: not delivered, worth another try; `never`: refused for good. `error` holds no secret."""

    result: Literal["ok", "again", "never"]
    error: str = ""


def send(channel: Channel, key: str, payload: Mapping[str, Any]) -> Sent:
    """Deliver a payload once; `key` lets the receiver drop what it has already."""
    if not channel.address:
        return Sent("never", f"the variable {channel.url_env} is not set")
    return _webhook(channel, key, payload) if channel.kind == "webhook" else _apprise(channel, payload)


def signature(secret: str, stamp: int, body: bytes) -> str:
    """`t=UNIX,v1=HEX`: HMAC-SHA256 of "UNIX.BODY"."""
    mac = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256)
    return f"t={stamp},v1={mac.hexdigest()}"


def _webhook(channel: Channel, key: str, payload: Mapping[str, Any]) -> Sent:
    import httpx

    body = orjson.dumps({**payload, "id": key}, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "tailtrace"}
    if channel.key:
        headers["X-Tailtrace-Signature"] = signature(channel.key, int(time.time()), body)
    try:
        with httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client:
            response = client.post(channel.address, content=body, headers=headers)
    except httpx.InvalidURL:
        return Sent("never", "the address cannot be read")
    except httpx.HTTPError as error:
        return Sent("again", type(error).__name__)  # its text may hold the address
    if response.status_code < 300:
        return Sent("ok")
    again = response.status_code >= 500 or response.status_code in _RETRY
    return Sent("again" if again else "never", f"answered {response.status_code}")


def _apprise(channel: Channel, payload: Mapping[str, Any]) -> Sent:
    import apprise

    made = apprise.Apprise()
    if not made.add(channel.address):
        return Sent("never", "apprise does not know this address")
    title, text = text_of(payload)
    kind = {"firing": apprise.NotifyType.WARNING, "resolved": apprise.NotifyType.SUCCESS}
    try:
        done = made.notify(
            body=text, title=title, body_format=apprise.NotifyFormat.TEXT,
            notify_type=kind.get(str(payload["event"]), apprise.NotifyType.INFO),
        )  # fmt: skip
    except Exception as error:  # plugins raise what they like; a broken one must not stop the others
        return Sent("again", type(error).__name__)
    return Sent("ok") if done else Sent("again", "the service did not take it")
