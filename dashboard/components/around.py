"""Around one request: its rank among its like, its tokens, its engine's steps, its GPUs' counters, its neighbours."""

from __future__ import annotations

from typing import Any, Final

from dash import html

from tailtrace.analytics.queries.neighbourhood import Neighbour, Neighbourhood, Stall, neighbourhood
from tailtrace.analytics.queries.request_head import is_judged, request_head
from tailtrace.analytics.queries.verdicts import RequestVerdict, request_verdict
from tailtrace.dashboard.components.axes import axis, plain_layout
from tailtrace.dashboard.components.figures import chart
from tailtrace.dashboard.components.lanes import lanes_chart
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import panel, table
from tailtrace.dashboard.components.verdict import verdict_panel
from tailtrace.dashboard.format import DASH, clock, count, duration, share
from tailtrace.dashboard.text import Text
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store

_S: Final = 1e9
_SHOWN: Final = 10


def draw_verdict(store: Store, text: Text, spec: dict[str, str]) -> Any:
    """Why this request took longer than usual, or that it did not."""
    if not is_judged(store, spec["trace"]):
        return html.P(text("request.not_judged"), className="tt-muted")
    head = request_head(store, spec["trace"], span_id=spec["entry"] or None)
    found: RequestVerdict = request_verdict(store, head.requests[0])
    if found.state == "too_few" or found.usual_ns is None:
        return html.P(text("request.too_few"), className="tt-muted")
    if found.verdict is None:
        return html.P(text("request.as_usual", usual=duration(found.usual_ns)))
    return html.Div(
        [
            html.P(text("request.slower", excess=duration(found.excess_ns), usual=duration(found.usual_ns))),
            verdict_panel(text, found.verdict),
        ],
        className="tt-list",
    )


def draw_around(store: Store, text: Text, spec: dict[str, str]) -> Any:
    """The panels below the waterfall; nothing while the request is not judged."""
    try:
        found = neighbourhood(store, spec["trace"], span_id=spec["entry"])
    except NotFound:
        return html.P(text("request.not_judged"), className="tt-muted")
    lanes = [lane for lane in (*found.steps.lanes, *found.counters.lanes, *found.hosts.lanes) if lane.lines]
    since, until = int(found.steps.since_unix_ns), int(found.steps.until_unix_ns)
    return html.Div(
        [
            html.Div([_like(text, found), _tokens(text, found)], className="tt-two"),
            lanes_chart(text, "lanes", text("around.lanes"), text("gpus.lanes.hint"), lanes, since, until)
            if lanes
            else panel(text("around.lanes"), "", html.P(text("around.no_lanes"), className="tt-muted")),
            _neighbours(text, found),
        ],
        className="tt-page",
    )


def _like(text: Text, found: Neighbourhood) -> Any:
    if found.rank is None or found.median_ns is None:
        return panel(text("around.like"), "", html.P(text("around.few", n=count(found.like)), className="tt-muted"))
    words = text(
        "around.rank", rank=share(found.rank), n=count(found.like), median=duration(found.median_ns),
        own=duration(found.duration_ns),
    )  # fmt: skip
    longest = max((max(one.own_ns, one.median_ns) for one in found.stages), default=1) or 1
    ordered = sorted(found.stages, key=lambda one: -abs(one.own_ns - one.median_ns))[:_SHOWN]
    rows = [
        html.Div(
            [
                html.Span(text.stage(one.stage), className="tt-pair-name"),
                html.Div(
                    [
                        html.I(style={"width": f"{100 * one.own_ns / longest:.1f}%",
                                      "background": f"var(--stage-{one.stage})"}),
                        html.I(style={"width": f"{100 * one.median_ns / longest:.1f}%",
                                      "background": "var(--line-strong)"}),
                    ],
                    className="tt-pair-bars",
                ),
                html.Span([html.Strong(duration(one.own_ns)), " / ", duration(one.median_ns)],
                          className="tt-pair-words"),
            ],
            className="tt-pair",
        )
        for one in ordered
    ]  # fmt: skip
    return panel(text("around.like"), text("around.like.hint"), html.P(words), *rows)


def _tokens(text: Text, found: Neighbourhood) -> Any:
    """The answer on its own axis: before the first token, while tokens came, the longest stalls, the rest."""
    if found.ttft_ns is None:
        return panel(text("around.tokens"), "", html.P(text("around.no_tokens"), className="tt-muted"))
    last = found.last_token_ns or found.duration_ns
    parts = [
        (text("around.first"), 0, found.ttft_ns, "var(--p99)"),
        (text("around.streaming"), found.ttft_ns, last - found.ttft_ns, "var(--p50)"),
        *((_stall_words(text, one), one.offset_ns, one.length_ns, "var(--p95)") for one in found.stalls),
    ]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar", "orientation": "h", "y": [0], "base": [begin / _S], "x": [length / _S], "name": name,
            "marker": {"color": colour}, "width": 0.8 if colour == "var(--p95)" else 0.5,
            "customdata": [f"{name}: +{duration(begin)}, {duration(length)}"],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
        for name, begin, length, colour in parts
    ]  # fmt: skip
    layout = plain_layout("tokens")
    layout.update({"barmode": "overlay", "hovermode": "closest", "margin": {"l": 12, "r": 12, "t": 2, "b": 24}})
    layout["xaxis"] = axis(range=[0, found.duration_ns / _S * 1.01], ticksuffix=" s", fixedrange=True)
    layout["yaxis"] = {"visible": False, "fixedrange": True, "range": [-0.6, 0.6]}
    facts = [
        (text("column.ttft"), duration(found.ttft_ns)), (text("around.last"), duration(found.last_token_ns)),
        (text("request.output"), count(found.output_tokens)), (text("around.stalls"), count(len(found.stalls))),
        (text("around.longest"), duration(max((one.length_ns for one in found.stalls), default=None))),
    ]  # fmt: skip
    named = [("around.first", "var(--p99)"), ("around.streaming", "var(--p50)")]
    named += [("around.stall", "var(--p95)")] if found.stalls else []
    key = [html.Span([html.I(style={"background": colour}), text(words)]) for words, colour in named]
    caption = html.Span(
        [html.Span(key, className="tt-key"), html.Span(text("around.tokens.hint"))], className="tt-row-of"
    )
    return chart(
        "tokens", text("around.tokens"), caption, {"data": traces, "layout": layout},
        html.Div([html.Span([name, " ", html.B(value)]) for name, value in facts], className="tt-facts-inline"),
        _gaps(text, found), _causes(text, found), height=86,
    )  # fmt: skip


def _stall_words(text: Text, one: Stall) -> str:
    return f"{text('around.stall')}: {text.cause(one.cause)}" if one.cause else text("around.stall")


def _causes(text: Text, found: Neighbourhood) -> Any:
    """The stalls, longest first, with what the engine did meanwhile."""
    if not found.stalls:
        return None
    number = "is-number"
    heads = [(text("around.at"), number), (text("around.length"), number), (text("gpus.cause"), "")]
    rows = [
        [
            "+" + duration(one.offset_ns), duration(one.length_ns),
            [text.cause(one.cause) if one.cause else text("around.no_cause"),
             html.Span([" · ", one.request_id], className="tt-muted") if one.request_id else None],
        ]
        for one in sorted(found.stalls, key=lambda one: -one.length_ns)
    ]  # fmt: skip
    return table(heads, rows)


def _gaps(text: Text, found: Neighbourhood) -> Any:
    whole = sum(n for _, n in found.gaps)
    if not whole:
        return None
    p50, p95 = found.gap_percentiles_ns
    most = max(bound for bound, _ in found.gaps)
    words = text("around.gaps", n=count(whole), p50=duration(p50), p95=duration(p95), most=duration(most))
    return html.P(words, className="tt-muted")


def _neighbours(text: Text, found: Neighbourhood) -> Any:
    if not found.neighbours:
        return None
    number = "is-number"
    heads = [(text("column.start"), ""), (text("column.duration"), number), (text("around.overlap"), number),
             (text("column.tokens"), number), (text.stage("prefill"), number)]  # fmt: skip

    def row(one: Neighbour) -> list[Any]:
        tokens = DASH if one.input_tokens is None else f"{count(one.input_tokens)} → {count(one.output_tokens)}"
        return [link(clock(one.start_unix_ns), href=f"/requests/{one.trace_id}"), duration(one.duration_ns),
                duration(one.overlap_ns), tokens, duration(one.prefill_ns)]  # fmt: skip

    shown = text("showing", shown=count(min(_SHOWN, len(found.neighbours))), total=count(found.neighbours_total))
    return panel(text("around.neighbours"), f"{found.engine_id.split('/', 1)[-1]} · {shown}",
                 table(heads, [row(one) for one in found.neighbours[:_SHOWN]]))  # fmt: skip
