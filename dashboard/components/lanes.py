"""Lanes: quantities under each other on one time axis, each with its own scale and the age of its readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tailtrace.analytics.queries.counters import Lane
from tailtrace.dashboard.components.axes import axis, base_layout
from tailtrace.dashboard.components.figures import chart
from tailtrace.dashboard.format import duration, iso
from tailtrace.dashboard.text import Text

_COLOURS: Final = tuple(f"var(--service-{n})" for n in range(8))
_HEIGHT: Final = 66  # pixels of a lane, of which its name has so many
_NAME: Final = 18
_PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def lanes_chart(
    text: Text, name: str, title: str, caption: Any, lanes: Sequence[Lane], since_ns: int, until_ns: int
) -> Any:
    """One panel with all lanes, so that they are seen together: utilisation is never alone."""
    figure = lanes_figure(text, lanes, since_ns, until_ns)
    return chart(name, title, caption, figure, wide=True, height=_HEIGHT * len(lanes) + 40)


def lanes_figure(text: Text, lanes: Sequence[Lane], since_ns: int, until_ns: int) -> dict[str, Any]:
    """A y axis a lane, one x axis for all."""
    layout = base_layout(since_ns, until_ns, 1, f"lanes/{since_ns}/{len(lanes)}")
    layout["margin"] = {"l": 58, "r": 8, "t": 6, "b": 22}
    layout["hovermode"] = "closest"
    layout["annotations"] = []
    traces = []
    height = 1 / max(1, len(lanes))
    for at, lane in enumerate(lanes):
        top = 1 - at * height
        suffix = "" if at == 0 else str(at + 1)
        most = max((value for line in lane.lines for value in line.values), default=0.0)
        share = lane.unit == "1"
        layout[f"yaxis{suffix}"] = axis(
            domain=[max(0.0, top - height), top - height * _NAME / _HEIGHT], fixedrange=True,
            range=[0, 1.02 if share else most * 1.1 or 1], nticks=3,
            tickformat=".0%" if share else ".3~s" if lane.unit else ",.3~r", ticksuffix="" if share else lane.unit,
            tickfont={"size": 10, "color": "var(--muted)"}, gridcolor="var(--line)",
        )  # fmt: skip
        age = "" if lane.age_ns is None else "  " + text("lane.age", age=duration(lane.age_ns))
        layout["annotations"].append(
            {
                "xref": "paper", "yref": "paper", "x": 0.003, "y": top, "xanchor": "left", "yanchor": "top",
                "showarrow": False, "text": text(f"lane.{lane.lane}") + age, "bgcolor": "var(--panel)",
                "font": {"size": 11, "color": "var(--fg)"}, "borderpad": 1,
            }
        )  # fmt: skip
        for number, line in enumerate(lane.lines):
            traces.append(
                {
                    "type": "scatter", "mode": "lines" if len(line.values) > 2 else "lines+markers",
                    "x": [iso(time) for time in line.times_unix_ns], "y": line.values,
                    "yaxis": f"y{suffix}", "name": f"{text(f'lane.{lane.lane}')} {line.name}".strip(),
                    "line": {"color": _COLOURS[number % 8], "width": 1.2, "shape": "hv"},
                    "customdata": [f"{line.name} {reading(value, lane.unit)}".strip() for value in line.values],
                    "hovertemplate": "%{x}<br>%{customdata}<extra></extra>",
                }
            )  # fmt: skip
    layout["xaxis"]["anchor"] = f"y{len(lanes)}" if len(lanes) > 1 else "y"
    return {"data": traces, "layout": layout}


def reading(value: float, unit: str) -> str:
    """`43 %`, `12.1 GBy/s`, `7`."""
    if unit == "1":
        return f"{100 * value:.0f} %"
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".strip()
