"""Service map: who calls whom, how often, and how long the way takes."""

from __future__ import annotations

from typing import Any, Final

from dash import html

from tailtrace.analytics.queries.service_map import ServiceMap, service_map
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.axes import plain_layout
from tailtrace.dashboard.components.figures import chart
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import notice, page_head, panel, scope_of, table
from tailtrace.dashboard.format import count, duration, share
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/map"
_ROW: Final = 92


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    scope = scope_of(store, address.only("range", "since", "until"))
    if scope is None:
        return first_run(text, settings)
    found = service_map(store, scope.window)
    head = page_head(text, address, _PATH, text("nav.map"), scope, every=True)
    if not found.nodes:
        return html.Div([head, notice(text("overview.none"))], className="tt-page")
    return html.Div([head, _drawing(text, address, found), _edges(text, found)], className="tt-page")


def layers(found: ServiceMap) -> dict[str, int]:
    """How many calls away from an entry each service is; cycles end where they are met again."""
    callees: dict[str, list[str]] = {}
    for edge in found.edges:
        callees.setdefault(edge.caller, []).append(edge.callee)
    called = {edge.callee for edge in found.edges}
    depth = {node.service: 0 for node in found.nodes if node.service not in called}
    line = list(depth) or [node.service for node in found.nodes[:1]]
    for name in line:
        depth.setdefault(name, 0)
    while line:
        name = line.pop(0)
        for callee in callees.get(name, ()):
            if callee not in depth:
                depth[callee] = depth[name] + 1
                line.append(callee)
    return {node.service: depth.get(node.service, 0) for node in found.nodes} | depth


def _drawing(text: Text, address: Address, found: ServiceMap) -> Any:
    depth = layers(found)
    columns: dict[int, list[str]] = {}
    for name, at in depth.items():
        columns.setdefault(at, []).append(name)
    tallest = max(len(names) for names in columns.values())
    place = {
        name: (float(at), (tallest - 1) / 2 - row + (len(names) - 1) / 2)
        for at, names in columns.items() for row, name in enumerate(names)
    }  # fmt: skip
    nodes = {node.service: node for node in found.nodes}
    most = max(edge.calls for edge in found.edges) if found.edges else 1
    layout = plain_layout("map")
    layout.update({"margin": {"l": 8, "r": 8, "t": 8, "b": 8}, "hovermode": "closest", "dragmode": False})
    hidden = {"visible": False, "fixedrange": True}
    layout["xaxis"] = {**hidden, "range": [-0.4, max(columns) + 0.4]}
    layout["yaxis"] = {**hidden, "range": [-0.7, tallest - 0.3]}
    layout["annotations"] = [
        {"x": place[edge.callee][0] - 0.16, "y": place[edge.callee][1], "ax": place[edge.caller][0] + 0.16,
         "ay": place[edge.caller][1], "xref": "x", "yref": "y", "axref": "x", "ayref": "y", "showarrow": True,
         "arrowhead": 2, "arrowsize": 1, "arrowwidth": 1 + 2.5 * edge.calls / most,
         "arrowcolor": "var(--line-strong)", "text": ""}
        for edge in found.edges if edge.callee in place and edge.caller in place
    ]  # fmt: skip
    layout["annotations"] += [
        {"x": (place[edge.caller][0] + place[edge.callee][0]) / 2,
         "y": (place[edge.caller][1] + place[edge.callee][1]) / 2,
         "showarrow": False, "bgcolor": "var(--panel)", "font": {"size": 11, "color": "var(--muted)"},
         "text": text("map.edge", n=count(edge.calls), ns=duration(edge.network_ns))}
        for edge in found.edges if edge.callee in place and edge.caller in place
    ]  # fmt: skip
    names = list(place)
    marks = {
        "type": "scatter", "mode": "markers+text", "x": [place[name][0] for name in names],
        "y": [place[name][1] for name in names], "textposition": "bottom center",
        "text": [
            f"<b>{_plain(name)}</b>"
            + (f"<br>{count(nodes[name].requests)} · P95 {duration(nodes[name].p95_ns)}" if name in nodes else "")
            for name in names
        ],
        "marker": {"size": 26, "symbol": "square", "line": {"width": 2, "color": "var(--line-strong)"},
                   "color": ["var(--bad)" if name in nodes and nodes[name].errors > 0.01 * nodes[name].requests
                             else "var(--p50)" for name in names]},
        "textfont": {"color": "var(--fg)", "size": 12},
        "customdata": [address.only("range", "since", "until").href("/", service=name, root="any") for name in names],
        "hoverinfo": "text", "name": text("nav.map"),
    }  # fmt: skip
    return chart("map", text("nav.map"), text("map.hint"), {"data": [marks], "layout": layout}, wide=True,
                 height=max(220, _ROW * tallest + 60))  # fmt: skip


def _plain(name: str) -> str:
    """Plotly reads a little HTML in its texts; names come from telemetry."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:40]


def _edges(text: Text, found: ServiceMap) -> Any:
    nodes = [
        [
            link(node.service or text("service.unnamed"), href=f"/requests?service={node.service}&root=any"),
            count(node.requests), share(node.errors / node.requests if node.requests else None),
            duration(node.p50_ns), duration(node.p95_ns),
        ]
        for node in found.nodes
    ]  # fmt: skip
    edges = [[f"{edge.caller} → {edge.callee}", count(edge.calls), duration(edge.network_ns)] for edge in found.edges]
    number = "is-number"
    left = panel(text("overview.table"), "", table(
        [(text("column.service"), ""), (text("column.rate"), number), (text("column.failed"), number), ("P50", number),
         ("P95", number)], nodes))  # fmt: skip
    right = panel(text("map.edges"), "", table(
        [(text("map.call"), ""), (text("map.calls"), number), (text("map.network"), number)], edges)
        if edges else html.P(text("map.no_edges"), className="tt-muted"))  # fmt: skip
    return html.Div([left, right], className="tt-two")
