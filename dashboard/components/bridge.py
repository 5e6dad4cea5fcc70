"""The bridge: from A's percentile to B's by traffic and stages, each bar starting where the one before it ended."""

from __future__ import annotations

from typing import Any, Final

from tailtrace.analytics.queries.compare import PercentileChange, Term
from tailtrace.dashboard.components.axes import axis, plain_layout
from tailtrace.dashboard.components.figures import chart
from tailtrace.dashboard.format import duration
from tailtrace.dashboard.text import Text

_S: Final = 1e9
_SHOWN: Final = 12
_SMALL: Final = 0.003  # of the larger side: what is left out goes into one bar, so that the bridge still meets B


def bridge_chart(text: Text, one: PercentileChange) -> Any:
    """Rows from top to bottom: A, traffic, stages by size, B."""
    figure, rows = bridge_figure(text, one)
    title = text("compare.bridge", q=f"P{one.q * 100:g}", metric=text(f"chart.{one.metric}"))
    return chart("bridge", title, text("compare.bridge.hint"), figure, wide=True, height=24 * rows + 46)


def bridge_figure(text: Text, one: PercentileChange) -> tuple[dict[str, Any], int]:
    """The figure and how many rows it has."""
    least = _SMALL * max(one.a_ns, one.b_ns, 1)
    terms = [term for term in (*one.traffic, *one.stages) if abs(term.change_ns) >= least][:_SHOWN]
    rest = one.change_ns - sum(term.change_ns for term in terms)
    names, bases, lengths, colours, patterns, words, errors = ["A"], [0.0], [one.a_ns / _S], ["var(--span)"], [""], [
        duration(one.a_ns)], [(0.0, 0.0)]  # fmt: skip
    at = one.a_ns
    for term in [*terms, *([Term("rest", rest, rest, rest)] if abs(rest) >= least else [])]:
        traffic = term.name in ("mix", "new", "vanished", "rest")
        names.append(text(f"compare.term.{term.name}") if traffic else text.stage(term.name))
        bases.append(at / _S)
        lengths.append(term.change_ns / _S)
        colours.append("var(--muted)" if traffic else f"var(--stage-{term.name})")
        patterns.append("/" if traffic else "")
        sign = "+" if term.change_ns > 0 else "−"
        words.append(f"{sign}{duration(abs(term.change_ns))}  [{_bound(term.low_ns)} … {_bound(term.high_ns)}]")
        errors.append(((term.high_ns - term.change_ns) / _S, (term.change_ns - term.low_ns) / _S))
        at += term.change_ns
    names.append("B")
    bases.append(0.0)
    lengths.append(one.b_ns / _S)
    colours.append("var(--span)")
    patterns.append("")
    words.append(duration(one.b_ns))
    errors.append((0.0, 0.0))
    rows = len(names)
    pattern = {"shape": patterns, "fgcolor": "var(--panel)", "size": 6, "fillmode": "overlay"}
    bars = {
        "type": "bar", "orientation": "h", "y": list(range(rows)), "x": lengths, "base": bases, "width": 0.7,
        "marker": {"color": colours, "pattern": pattern}, "customdata": words,
        "hovertemplate": "%{customdata}<extra></extra>", "name": text(f"chart.{one.metric}"),
        "error_x": {"type": "data", "symmetric": False, "array": [max(0.0, high) for high, _ in errors],
                    "arrayminus": [max(0.0, low) for _, low in errors], "color": "var(--fg)", "thickness": 1,
                    "width": 3},
    }  # fmt: skip
    ends = [base + max(0.0, length) + error[0] for base, length, error in zip(bases, lengths, errors, strict=True)]
    layout = plain_layout(f"bridge/{one.metric}/{one.q}")
    layout.update({"margin": {"l": 130, "r": 205, "t": 6, "b": 26}, "hovermode": "closest"})
    layout["xaxis"] = axis(range=[0, max(ends) * 1.02], ticksuffix=" s", fixedrange=True)
    layout["yaxis"] = axis(
        autorange="reversed", fixedrange=True, tickfont={"size": 12, "color": "var(--fg)"}, tickvals=list(range(rows)),
        ticktext=names, showgrid=False,
    )  # fmt: skip
    layout["annotations"] = [
        {"xref": "paper", "x": 1.005, "y": row, "xanchor": "left", "showarrow": False, "text": said,
         "font": {"size": 11, "color": "var(--fg)"}}
        for row, said in enumerate(words)
    ]  # fmt: skip
    return {"data": [bars], "layout": layout}, rows


def _bound(ns: int) -> str:
    return ("−" if ns < 0 else "+") + duration(abs(ns))
