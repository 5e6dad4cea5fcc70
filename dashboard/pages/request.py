"""Request: one trace, its time divided among stages to exactly 100 %, and its spans as a waterfall."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.analytics.queries.request_head import RequestHead, request_head
from tailtrace.analytics.queries.request_row import RequestRow
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.later import later
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.marks import copyable, outcome_mark, simulated_mark
from tailtrace.dashboard.components.stage_bar import stage_bar
from tailtrace.dashboard.components.stage_table import stage_table
from tailtrace.dashboard.components.waterfall import waterfall_panel
from tailtrace.dashboard.format import count, duration, moment
from tailtrace.dashboard.text import Text
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.stages import UNEXPLAINED

_ENTRIES = 12


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    """The page of /requests/{trace_id}; a page that says why when there is nothing under the id."""
    wanted = pathname.rstrip("/").rsplit("/", 1)[-1]
    try:
        head = request_head(store, wanted, span_id=address.entry or None)
    except (NotFound, Rejected) as error:
        return html.Div(
            [
                html.H1(text("request.missing")),
                html.P(text.said(str(error))),
                html.P(text("request.retention", gb=count(settings.storage_budget_bytes // 1_000_000_000))),
                link(text("request.back"), href="/requests", className="tt-button"),
            ],
            className="tt-notice",
        )
    own = head.requests[0]
    return html.Div(
        [
            _title(text, own),
            _figures(text, own),
            _ids(text, own),
            _entries(text, head),
            _time(text, head),
            waterfall_panel(text, head.trace_id, own.span_id),
            later(text, "around", trace=head.trace_id, entry=own.span_id),
        ],
        className="tt-page",
    )


def _title(text: Text, own: RequestRow) -> Any:
    return html.Div(
        [
            html.H1(
                [
                    html.Span(own.service or text("service.unnamed")),
                    html.Span(" "),
                    html.Span(own.route or own.name, className="tt-muted"),
                ]
            ),
            outcome_mark(text, own.outcome),
            html.Span(own.error_type, className="tt-caption") if own.error_type else None,
            simulated_mark(text) if own.simulated else None,
            *[_flag(text, flag) for flag in own.flags],
            html.Span(moment(own.start_unix_ns), className="tt-caption"),
            html.A("JSON", href=f"/api/v1/requests/{own.trace_id}", className="tt-button is-small", target="_blank"),
            html.A(
                "Perfetto",
                href=f"/api/v1/requests/{own.trace_id}/chrome",
                className="tt-button is-small",
                title=text("request.chrome"),
            ),
        ],
        className="tt-page-head",
    )


def _flag(text: Text, name: str) -> Any:
    """What was missing, repaired or clipped; its own name on hover, as the API has it."""
    hint = text.or_else(f"flag.{name}.hint", text("flag.hint"))
    return html.Span(text.or_else(f"flag.{name}", name), className="tt-badge", title=f"{name}: {hint}")


def _figures(text: Text, own: RequestRow) -> Any:
    cached = f" ({text('request.cached', n=count(own.cached_tokens))})" if own.cached_tokens else ""
    figures = (
        ("column.duration", duration(own.duration_ns)),
        ("column.ttft", duration(own.ttft_ns)),
        ("column.tpot", duration(own.tpot_ns)),
        ("request.input", count(own.input_tokens) + cached),
        ("request.output", count(own.output_tokens)),
        ("column.model", own.model or "–"),
        ("request.replica", own.replica or "–"),
        ("request.spans", count(own.span_count)),
    )
    return html.Dl(
        [
            html.Div([html.Dt(text(key), title=text.meaning(key)), html.Dd(value, title=value)])
            for key, value in figures
        ],
        className="tt-figures",
    )


def _ids(text: Text, own: RequestRow) -> Any:
    ids = [("trace", own.trace_id), ("span", own.span_id)] + ([("request", own.request_id)] if own.request_id else [])
    return html.Div([copyable(text, text(f"id.{kind}"), value) for kind, value in ids], className="tt-ids")


def _entries(text: Text, head: RequestHead) -> Any:
    """Every service's own view of this call; one click makes it the one that is divided below."""
    if len(head.requests) < 2:
        return None
    ordered = sorted(head.requests, key=lambda row: (not row.is_root, int(row.start_unix_ns)))
    links = [
        link(
            [html.Span(row.service), html.B(duration(row.duration_ns))],
            href=f"/requests/{row.trace_id}" + ("" if row.is_root else f"?entry={row.span_id}"),
            className="tt-entry" + (" is-current" if row.span_id == head.requests[0].span_id else ""),
            title=row.name,
        )
        for row in ordered[:_ENTRIES]
    ]
    more = (
        html.Span(text("showing", shown=_ENTRIES, total=count(len(ordered))), className="tt-caption")
        if len(ordered) > _ENTRIES
        else None
    )
    return html.Div([html.Span(text("request.entries"), className="tt-caption"), *links, more], className="tt-entries")


def _time(text: Text, head: RequestHead) -> Any:
    return html.Section(
        [
            html.Div(
                [html.H2(text("request.time")), html.Span(text("request.sums"), className="tt-caption")],
                className="tt-panel-head",
            ),
            stage_bar(text, head.stage_table),
            html.Div([stage_table(text, head.stage_table), _why(text, head)], className="tt-time"),
        ],
        className="tt-panel",
        **aria(label=text("request.time")),
    )


def _why(text: Text, head: RequestHead) -> Any:
    """Room for the verdict, what is not opened yet, and the conditions a comparison has to hold fixed."""
    conditions = [
        html.Div([html.Dt(text(f"condition.{key}")), html.Dd(value, title=value)])
        for key, value in head.conditions.items()
    ]
    return html.Div(
        [
            html.H3(text("request.why")),
            later(text, "verdict", trace=head.trace_id, entry=head.requests[0].span_id),
            _hint(text, head),
            html.H3(text("request.conditions")) if conditions else None,
            html.Dl(conditions, className="tt-conditions"),
        ],
        className="tt-why",
    )


def _hint(text: Text, head: RequestHead) -> Any:
    """Where no stage marks exist: the one call that would open the largest block."""
    opaque = {"app", "network", "external", UNEXPLAINED}
    if not head.stage_table or any(line.stage not in opaque for line in head.stage_table):
        return None
    largest = max(head.stage_table, key=lambda line: line.duration_ns)
    inner = min(head.requests, key=lambda row: row.duration_ns)
    return html.P(
        [
            text("hint.block", ns=duration(largest.duration_ns), service=inner.service or text("service.unnamed")),
            " ",
            html.Code(_call(inner), className="tt-call"),
        ],
        className="tt-hint",
    )


def _call(row: RequestRow) -> str:
    """The call that opens a block: the launcher for an engine, the gateway wrapper for anything else."""
    words = f"{row.engine} {row.service} {row.name}".lower()
    return (
        "tailtrace run -- CMD"
        if any(name in words for name in ("vllm", "sglang", "llm", "engine", "triton"))
        else "wrap_gateway(app)"
    )
