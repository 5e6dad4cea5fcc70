"""Stored engine steps as the OTLP spans they were sent as. Their ids are drawn anew, the same at every export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tailtrace.cli.stored_pages import Selection, attributes, pages

if TYPE_CHECKING:
    from tailtrace.cli.client import ApiClient

STEPS_A_BODY: Final = 2_000
_SCOPE: Final = "tailtrace.steps"
_RESOURCE: Final = ("service.name", "service.instance.id", "host.id", "tailtrace.model", "tailtrace.gpu_uuids")
_NUMBERS: Final = (
    "running", "waiting", "waiting_capacity", "waiting_deferred", "prefill_tokens", "decode_tokens", "kv_usage",
    "gpu_ns",
)  # fmt: skip
_COLUMNS: Final = """
Service, Replica, HostId, Model, GpuUuids, Simulated, toUnixTimestamp64Nano(Time), DurationNs, EngineId,
toString(Running), toString(Waiting), toString(WaitingCapacity), toString(WaitingDeferred), toString(PrefillTokens),
toString(DecodeTokens), toString(KvUsage), toString(GpuNs), PrefillRequests, PrefillRequestTokens, Preempted,
Attributes, lower(hex(sipHash128(EngineId, toStartOfMinute(Time)))),
lower(hex(reinterpretAsFixedString(sipHash64(EngineId, Time))))
"""


def bodies(api: ApiClient, selection: Selection) -> Iterator[dict[str, Any]]:
    """Export requests of at most 2,000 steps, in order of time."""
    for rows in pages(api, "engine_steps", "Time", _COLUMNS, selection):
        for start in range(0, len(rows), STEPS_A_BODY):
            yield _body(rows[start : start + STEPS_A_BODY])


def _body(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    resources: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = {key: value for key, value in zip(_RESOURCE, row[:5], strict=True) if value}
        if row[5]:
            known["tailtrace.simulated"] = "true"
        entry = resources.setdefault(
            str(known),
            {"resource": {"attributes": attributes(known)}, "scopeSpans": [{"scope": {"name": _SCOPE}, "spans": []}]},
        )
        entry["scopeSpans"][0]["spans"].append(_span(row[6:]))
    return {"resourceSpans": list(resources.values())}


def _span(row: Sequence[Any]) -> dict[str, Any]:
    start, duration, engine = row[:3]
    requests, tokens, preempted, others, trace, span = row[11:]
    given = {"engine_id": engine} | {
        name: value for name, value in zip(_NUMBERS, row[3:11], strict=True) if value is not None
    }
    if requests:
        given["prefill"] = ",".join(f"{request}:{n}" for request, n in zip(requests, tokens, strict=True))
    if preempted:
        given["preempted"] = ",".join(preempted)
    own = attributes({f"tailtrace.{name}": value for name, value in given.items()})
    return {
        "traceId": trace, "spanId": span, "name": "step", "kind": 1, "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + duration), "attributes": own + attributes(others),
    }  # fmt: skip
