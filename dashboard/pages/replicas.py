"""Replicas: who does how much of the work, who waits, and what is left."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries import RequestFilter, RequestList, list_requests
from tailtrace.analytics.queries.batch_curve import BatchCurve, batch_curve
from tailtrace.analytics.queries.replicas import ReplicaLoad, Replicas, replicas
from tailtrace.analytics.queries.selection import select
from tailtrace.analytics.queries.together import together
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.axes import axis, plain_layout
from tailtrace.dashboard.components.figures import chart
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import notice, page_head, panel, scope_of, service_controls, table, tag
from tailtrace.dashboard.components.stage_bar import legend, mini_bar
from tailtrace.dashboard.format import DASH, clock, count, duration, moment, rate, share
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.stages import NAMES, UNEXPLAINED

_PATH: Final = "/replicas"
_UNEVEN: Final = 1.2
_STARTS: Final = 20
_NAMED_FROM: Final = 0.01


def controls(store: Store, text: Text, address: Address) -> Any:
    return service_controls(store, text, address)


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    scope = scope_of(store, address)
    if scope is None:
        return first_run(text, settings)
    window = scope.window
    started = RequestFilter(
        kind="startup", is_root=None, since_ns=window.since_ns, until_ns=window.until_ns, limit=_STARTS
    )
    calls: list[Any] = [
        partial(replicas, store, select(window, scope.service)),
        partial(batch_curve, store, window, scope.service),
        partial(list_requests, store, started),
    ]
    found, curve, starts = together(calls)
    head = page_head(text, address, _PATH, text("nav.replicas"), scope)
    if not found.replicas:
        none = notice(text("replicas.none"), text.said(found.reason or ""))
        return html.Div([head, none, _starts(text, starts)], className="tt-page")
    return html.Div(
        [head, html.P(_sentence(text, found), className="tt-sentence"), _table(text, address, found, scope.service),
         _curve(text, curve), _starts(text, starts)],
        className="tt-page",
    )  # fmt: skip


def _sentence(text: Text, found: Replicas) -> list[Any]:
    words: list[Any] = []
    if found.imbalance is not None:
        words.append(
            text(
                "replicas.imbalance", work=f"{found.imbalance:.2f}", requests=f"{found.imbalance_by_requests or 1:.2f}"
            )
        )
        if found.imbalance >= _UNEVEN:
            words += [" ", tag(text("replicas.uneven"), "warn")]
    if found.load is not None:
        words += [" ", text("replicas.load", load=share(found.load))]
    left = found.capacity
    if left is not None:
        now = rate(left.per_second_now)
        far = text("replicas.capacity.far", now=now)
        words += [" ", text("replicas.capacity", factor=f"{left.factor:.2g}", now=now) if left.factor else far]
    return words


def _table(text: Text, address: Address, found: Replicas, service: str) -> Any:
    most = max(one.work_share for one in found.replicas) or 1
    heads = [("column.replica", ""), ("column.rate", "is-number"), ("replicas.work", "is-number"), ("", "is-share"),
             ("replicas.busy", "is-number"), ("replicas.queued", "is-number"), ("replicas.queued_tokens", "is-number"),
             ("replicas.queue_p95", "is-number"), ("replicas.p95", "is-number"), ("replicas.speed", "is-number"),
             ("replicas.first", "is-number")]  # fmt: skip

    def row(one: ReplicaLoad) -> list[Any]:
        href = address.only("range", "since", "until").href("/requests", service=service, replica=one.replica)
        return [
            link(one.replica[:18] or DASH, href=href, title=one.replica), count(one.requests), share(one.work_share),
            html.Div(className="tt-share", style={"width": f"{100 * one.work_share / most:.0f}%",
                                                  "background": "var(--accent)"}),
            share(one.busy), f"{one.queued_requests:.2f}", f"{one.queued_tokens:,.0f}", duration(one.queue_p95_ns),
            duration(one.duration_p95_ns), f"{one.speed:.2f}×", clock(one.first_unix_ns)[:8],
        ]  # fmt: skip

    words = [(text(key) if key else "", kind) for key, kind in heads]
    return panel(text("nav.replicas"), text("replicas.hint"), table(words, [row(one) for one in found.replicas]))


def _starts(text: Text, found: RequestList) -> Any:
    """Cold starts in the range: when, how long, and what of it was loading, compiling, warming up."""
    if not found.requests:
        return panel(text("replicas.starts"), "", html.P(text("replicas.no_starts"), className="tt-muted"))
    longest = max(row.duration_ns for row in found.requests) or 1
    heads = [(text("column.start"), ""), (text("column.service"), ""), (text("column.replica"), ""),
             (text("column.duration"), "is-number"), (text("column.stages"), "is-stages")]  # fmt: skip
    rows = [
        [link(moment(row.start_unix_ns), href=f"/requests/{row.trace_id}?entry={row.span_id}"), row.service,
         row.replica[:18] or DASH, duration(row.duration_ns),
         mini_bar(text, row.stages, row.unexplained_ns, row.duration_ns, width=row.duration_ns / longest)]
        for row in found.requests
    ]  # fmt: skip
    present = {part.stage for row in found.requests for part in row.stages if part.share >= _NAMED_FROM}
    shown = text("showing", shown=count(len(found.requests)), total=count(found.total))
    key = legend(text, [stage for stage in NAMES if stage in present] + [UNEXPLAINED])
    return panel(text("replicas.starts"), shown, table(heads, rows), html.Div(key, className="tt-table-foot"))


def _curve(text: Text, curve: BatchCurve) -> Any:
    """Step time against batch: where it bends, a larger batch only buys waiting."""
    if not curve.points:
        said = text.said(curve.reason or "") or text("replicas.no_steps")
        return panel(text("replicas.curve.title"), "", html.P(said, className="tt-muted"))
    layout = plain_layout("curve")
    layout["margin"] = {"l": 58, "r": 72, "t": 6, "b": 38}
    layout["xaxis"] = axis(
        title={"text": text("replicas.batch"), "font": {"size": 11}},
        fixedrange=True,
        tickformat="d",
        dtick=1 if max(point.batch for point in curve.points) <= 10 else None,
    )
    layout["yaxis"] = axis(ticksuffix=" ms", rangemode="tozero", fixedrange=True)
    layout["yaxis2"] = axis(overlaying="y", side="right", ticksuffix=" tok/s", rangemode="tozero", showgrid=False,
                            tickmode="auto", fixedrange=True)  # fmt: skip
    batch = [point.batch for point in curve.points]
    traces = [
        {"type": "scatter", "mode": "lines+markers", "x": batch,
         "y": [getattr(point, key) / 1e6 for point in curve.points],
         "name": text(f"replicas.{key}"), "line": {"color": colour, "width": 1.5}, "marker": {"size": 4}}
        for key, colour in (("step_p50_ns", "var(--p50)"), ("step_p95_ns", "var(--p95)"))
    ]  # fmt: skip
    traces.append({"type": "scatter", "mode": "lines", "x": batch, "y": [p.tokens_per_second for p in curve.points],
                   "name": text("lane.tokens"), "yaxis": "y2",
                   "line": {"color": "var(--good)", "dash": "dot"}})  # fmt: skip
    facts = [] if curve.fixed_ns is None else [text(
        "replicas.curve", fixed=duration(curve.fixed_ns), each=duration(curve.per_sequence_ns),
        knee=count(curve.knee), limited=share(curve.limited))]  # fmt: skip
    return chart("curve", text("replicas.curve.title"), " ".join(facts), {"data": traces, "layout": layout}, wide=True,
                 height=240)  # fmt: skip
