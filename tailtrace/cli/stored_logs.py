"""Stored log records as OTLP/JSON bodies: attributes and structured bodies come back as the text they are stored as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tailtrace.cli.stored_pages import Selection, attributes, pages

if TYPE_CHECKING:
    from tailtrace.cli.client import ApiClient

RECORDS_A_BODY: Final = 2_000
_COLUMNS: Final = """
ResourceSchemaUrl, ResourceAttributes, ScopeSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes,
toUnixTimestamp64Nano(Timestamp), TraceId, SpanId, TraceFlags, SeverityText, SeverityNumber, Body, LogAttributes,
EventName
"""


def bodies(api: ApiClient, selection: Selection) -> Iterator[dict[str, Any]]:
    """Export requests of at most 2,000 records, in order of time."""
    for rows in pages(api, "otel_logs", "Timestamp", _COLUMNS, selection):
        for start in range(0, len(rows), RECORDS_A_BODY):
            yield _body(rows[start : start + RECORDS_A_BODY])


def count(body: dict[str, Any]) -> int:
    """Records of a body."""
    return sum(len(scope["logRecords"]) for each in body["resourceLogs"] for scope in each["scopeLogs"])


def _body(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    resources: dict[str, dict[str, Any]] = {}
    for row in rows:
        resource_url, resource, scope_url, name, version, scope = row[:6]
        entry = resources.setdefault(
            str((resource_url, resource)),
            {"resource": {"attributes": attributes(resource)}, "schemaUrl": resource_url, "scopes": {}},
        )
        records = entry["scopes"].setdefault(
            str((scope_url, name, version, scope)),
            {
                "scope": {"name": name, "version": version, "attributes": attributes(scope)},
                "schemaUrl": scope_url,
                "logRecords": [],
            },
        )["logRecords"]
        records.append(_record(row[6:]))
    return {
        "resourceLogs": [
            {key: value for key, value in entry.items() if key != "scopes"}
            | {"scopeLogs": list(entry["scopes"].values())}
            for entry in resources.values()
        ]
    }


def _record(row: Sequence[Any]) -> dict[str, Any]:
    at, trace, span, flags, severity, number, text, own, event = row
    return {
        "timeUnixNano": str(at), "traceId": trace, "spanId": span, "flags": flags, "severityText": severity,
        "severityNumber": number, "body": {"stringValue": text}, "attributes": attributes(own), "eventName": event,
    }  # fmt: skip
