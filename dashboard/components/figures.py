"""Charts as Plotly figures whose colours are CSS variables; the page fills them in for the theme, so a switch
needs no server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries import Series
from tailtrace.analytics.queries.percentiles import Percentile
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.attributes import data as data_of
from tailtrace.dashboard.components.axes import base_layout, decades
from tailtrace.dashboard.format import count, duration, iso, rate, share
from tailtrace.dashboard.still import Chart
from tailtrace.dashboard.text import Text
from tailtrace.stages import UNEXPLAINED

# Plotly's own "share" button uploads the chart to a public server: there is no mode bar, and the button is off besides.
CONFIG: Final[Any] = {
    "displayModeBar": False,
    "displaylogo": False,
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "responsive": True,
    "doubleClick": False,
    "scrollZoom": False,
}
_COLOURS: Final = ("var(--p50)", "var(--p95)", "var(--p99)")
_NAMES: Final = ("P50", "P95", "P99")


def chart(
    name: str,
    title: str,
    caption: Any,
    figure: dict[str, Any],
    *extra: Any,
    wide: bool = False,
    height: int = 190,
    over_time: bool = False,
) -> Any:
    """A panel with a chart in it, which the browser colours and draws; see `Chart`."""
    return html.Section(
        [
            html.Div([html.H2(title), html.Span(caption, className="tt-caption")], className="tt-panel-head"),
            Chart(figure, CONFIG, height, name, over_time),
            html.Button("⊞", className="tt-plain tt-as-table", **data_of(as_table=name), **aria(label=f"⊞ {title}")),
            *extra,
        ],
        className="tt-panel is-wide" if wide else "tt-panel",
        **aria(label=title),
    )


def rate_figure(text: Text, data: Series) -> dict[str, Any]:
    """Requests a second, with those that failed on top in their own colour."""
    times = _times(data)
    good = [whole - bad for whole, bad in zip(data.per_second, data.failed_per_second, strict=True)]
    bars = [_bar(times, good, text("chart.good"), "var(--p50)", [rate(value) for value in good])]
    if any(data.failed_per_second):
        bars.append(
            _bar(
                times,
                data.failed_per_second,
                text("chart.failed"),
                "var(--bad)",
                [rate(v) for v in data.failed_per_second],
            )
        )
    return _figure(bars, data, {"rangemode": "tozero", "ticksuffix": "/s"}, stacked=True)


def percentile_figure(text: Text, data: Series, columns: Sequence[Sequence[Percentile]]) -> dict[str, Any]:
    """P50, P95, P99 in ms on a log axis; open circles with their interval where too few requests stand behind them."""
    lines = percentile_lines(text, _times(data), columns)
    return _figure(lines, data, {"type": "log", "tickmode": "array", **decades()})


def percentile_lines(text: Text, times: list[str], columns: Sequence[Sequence[Percentile]]) -> list[dict[str, Any]]:
    """P50, P95 and P99 as lines, in their colours."""
    return [
        _line(text, times, points, name, colour) for points, name, colour in zip(columns, _NAMES, _COLOURS, strict=True)
    ]


def percentile_key() -> Any:
    """The names of the three lines, in their colours."""
    return html.Span(
        [
            html.Span([html.I(style={"background": colour}), name])
            for name, colour in zip(_NAMES, _COLOURS, strict=True)
        ],
        className="tt-key",
    )


def shares_figure(text: Text, data: Series) -> dict[str, Any]:
    """Stage shares stacked to 100 % at each step; steps without requests stay empty."""
    times = _times(data)
    bars = []
    for one in data.stages:
        bar = _bar(
            times,
            [None if value is None else value * 100 for value in one.share],
            text.stage(one.stage),
            f"var(--stage-{one.stage})",
            [share(value) for value in one.share],
        )
        if one.stage == UNEXPLAINED:
            bar["marker"]["pattern"] = {"shape": "/", "size": 5, "solidity": 0.3, "fgcolor": "var(--muted)"}
        bars.append(bar)
    return _figure(bars, data, {"range": [0, 100], "ticksuffix": " %", "fixedrange": True}, stacked=True)


def _times(data: Series) -> list[str]:
    return [iso(moment) for moment in data.times_unix_ns]


def _bar(times: list[str], values: Sequence[float | None], name: str, colour: str, words: list[str]) -> dict[str, Any]:
    return {
        "type": "bar",
        "x": times,
        "y": list(values),
        "name": name,
        "marker": {"color": colour, "line": {"width": 0}},
        "customdata": words,
        "hovertemplate": "%{customdata}",
    }


def _line(text: Text, times: list[str], points: Sequence[Percentile], name: str, colour: str) -> dict[str, Any]:
    milliseconds = [None if point.value_ns is None else point.value_ns / 1e6 for point in points]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": times,
        "y": milliseconds,
        "name": name,
        "connectgaps": False,
        "line": {"color": colour, "width": 1.5},
        "marker": {
            "color": colour,
            "size": [5 if point.hollow else 4 for point in points],
            "symbol": ["circle-open" if point.hollow else "circle" for point in points],
        },
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [_reach(point.value_ns, point.high_ns) if point.hollow else 0 for point in points],
            "arrayminus": [_reach(point.low_ns, point.value_ns) if point.hollow else 0 for point in points],
            "color": colour,
            "thickness": 0.6,
            "width": 0,
        },
        "customdata": [_hover(text, point) for point in points],
        "hovertemplate": "%{customdata}",
    }


def _reach(low: int | None, high: int | None) -> float:
    return 0.0 if low is None or high is None else max(0.0, (high - low) / 1e6)


def _hover(text: Text, point: Percentile) -> str:
    if point.value_ns is None:
        return ""
    if point.hollow:
        return text(
            "chart.hollow",
            value=duration(point.value_ns),
            low=duration(point.low_ns),
            high=duration(point.high_ns),
            n=count(point.n),
        )
    return text("chart.solid", value=duration(point.value_ns), n=count(point.n))


def _figure(traces: list[dict[str, Any]], data: Series, y: dict[str, Any], *, stacked: bool = False) -> dict[str, Any]:
    end = int(data.times_unix_ns[-1]) + data.step_ns
    # Another service or range starts anew.
    layout = base_layout(int(data.times_unix_ns[0]), end, data.step_ns, f"{data.service}/{data.step_ns}")
    layout["yaxis"].update(y)
    if stacked:
        layout["barmode"] = "stack"
    return {"data": traces, "layout": layout}
