"""Latency over time as a heatmap: colour is the logarithm of the count, lines are percentiles of the same requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries.heatmap import Heatmap
from tailtrace.analytics.queries.recorded import RecordedMarker
from tailtrace.dashboard.components.axes import base_layout, decades
from tailtrace.dashboard.components.figures import chart, percentile_key, percentile_lines
from tailtrace.dashboard.components.markers import mark
from tailtrace.dashboard.format import clock, count, duration, iso
from tailtrace.dashboard.text import Text

# Cividis: ordered in lightness, the same to every kind of colour vision; turned round in the light theme by the page.
_SCALE: Final = [
    [0.0, "var(--heat-0)"], [0.25, "var(--heat-1)"], [0.5, "var(--heat-2)"], [0.75, "var(--heat-3)"],
    [1.0, "var(--heat-4)"],
]  # fmt: skip
_NS_A_MS: Final = 1e6


def heatmap_panel(
    text: Text,
    data: Heatmap,
    box: tuple[int, int, int, int] | None = None,
    deploys: Sequence[RecordedMarker] = (),
    service: str = "",
) -> Any:
    """The panel; a drag marks a box (see assets/c_chart.js), a click opens the slowest request of a cell."""
    caption = html.Span(
        [percentile_key(), html.Span(text("heatmap.hint"), className="tt-caption")], className="tt-row-of"
    )
    figure = heatmap_figure(text, data)
    if box:
        since, until, low, high = box
        figure["layout"]["shapes"] = [
            {
                "type": "rect", "x0": iso(since), "x1": iso(until), "y0": max(low, 1) / _NS_A_MS, "y1": high / _NS_A_MS,
                "line": {"color": "var(--fg)", "width": 1.5, "dash": "dot"}, "fillcolor": "rgba(128,128,128,0.12)",
            }
        ]  # fmt: skip
    mark(figure, text, deploys, service=service)
    return chart("heatmap", text("heatmap.title"), caption, figure, wide=True, height=230, over_time=True)


def heatmap_figure(text: Text, data: Heatmap) -> dict[str, Any]:
    """Cells have edges, so that they are as tall as their buckets on the log axis."""
    end = str(int(data.times_unix_ns[-1]) + data.step_ns)
    times = [iso(at) for at in (*data.times_unix_ns, end)]
    cells = {
        "type": "heatmap",
        "x": times,
        "y": [edge / _NS_A_MS for edge in (*data.low_ns, *data.high_ns[-1:])],
        "z": [[math.log10(n) + 0.25 if n else None for n in row] for row in data.counts],
        "zmin": 0,
        "customdata": data.slowest,
        "text": [
            [
                text(
                    "heatmap.cell", n=count(n), low=duration(low), high=duration(high), time=clock(time)[:8]
                ) if n else ""
                for n, time in zip(row, data.times_unix_ns, strict=True)
            ]
            for row, low, high in zip(data.counts, data.low_ns, data.high_ns, strict=True)
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "colorscale": _SCALE,
        "showscale": False,
        "hoverongaps": False,
        "xgap": 1,
        "name": text("heatmap.title"),
    }  # fmt: skip
    lines = percentile_lines(text, [iso(int(at) + data.step_ns // 2) for at in data.times_unix_ns], data.percentiles)
    for line in lines:
        line.update({"hoverinfo": "skip", "hovertemplate": None, "error_y": None})
    layout = base_layout(
        int(data.times_unix_ns[0]), int(data.times_unix_ns[-1]) + data.step_ns, data.step_ns, f"heat/{data.step_ns}"
    )
    layout["yaxis"].update({"type": "log", "tickmode": "array", "showgrid": False, **decades()})
    layout.update({"dragmode": "select", "hovermode": "closest", "selectdirection": "any"})
    return {"data": [cells, *lines], "layout": layout}
