"""What every chart over time shares: axes, margins, fonts, colours of the theme."""

from __future__ import annotations

from typing import Any, Final

from tailtrace.dashboard.format import duration, iso

_DAY_NS: Final = 86_400_000_000_000
_AXIS: Final = {
    "gridcolor": "var(--line)",
    "linecolor": "var(--line)",
    "zeroline": False,
    "tickfont": {"size": 11, "color": "var(--muted)"},
}


def axis(**values: Any) -> dict[str, Any]:
    """One axis in the look of all of them."""
    return {**_AXIS, **values}


def base_layout(since_ns: int, until_ns: int, step_ns: int, revision: str) -> dict[str, Any]:
    """A layout over [since, until). `revision` names what is shown: while it stays, a refresh keeps the zoom."""
    return {
        **plain_layout(revision),
        "hovermode": "x unified",
        "bargap": 0,
        "xaxis": axis(
            type="date",
            range=[iso(since_ns), iso(until_ns)],
            nticks=7,
            showgrid=False,
            tickformat=_tick_format(since_ns, until_ns, step_ns),
            hoverformat="%Y-%m-%d %H:%M:%S",
        ),
        "yaxis": axis(fixedrange=True),
    }


def plain_layout(revision: str) -> dict[str, Any]:
    """A layout without axes of its own."""
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 11, "color": "var(--fg)"},
        "margin": {"l": 52, "r": 8, "t": 6, "b": 22},
        "showlegend": False,
        "hoverlabel": {
            "bgcolor": "var(--panel)",
            "bordercolor": "var(--line-strong)",
            "font": {"color": "var(--fg)", "size": 12},
        },
        "dragmode": "zoom",
        "uirevision": revision,
    }


def decades() -> dict[str, Any]:
    """Ticks at 1 µs, 10 µs ... 10,000 s on an axis in ms, named in the unit that suits."""
    powers = range(-3, 8)
    return {
        "tickvals": [10.0**power for power in powers],
        "ticktext": [
            f"{10 ** (power - 3):,} s"
            if power >= 5
            else duration(10 ** (power + 6)).replace(".00", "").replace(".0", "")
            for power in powers
        ],
    }


def _tick_format(begin: int, end: int, step_ns: int) -> str:
    """Clock times within a day, dates beside them beyond it, dates alone for steps of a day; seconds within minutes."""
    if step_ns >= _DAY_NS:
        return "%m-%d"
    if end - begin > _DAY_NS:
        return "%m-%d %H:%M"
    return "%H:%M" if end - begin > 600_000_000_000 else "%H:%M:%S"
