"""The ribbon: one line a GPU, coloured by whether it works, is idle without work, or is idle while requests wait."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import Any, Final

from tailtrace.analytics.queries.gpu_idle import GpuIdle, GpuStretch
from tailtrace.dashboard.components.axes import axis, base_layout
from tailtrace.dashboard.components.figures import chart
from tailtrace.dashboard.format import clock, duration, iso
from tailtrace.dashboard.text import Text

_ROW: Final = 22
_PATTERNS: Final = {"idle_waiting": "/", "unknown": "."}


def shown_state(state: str, cause: str) -> str:
    """Idle for want of work is one thing, idle while requests wait another."""
    return "idle_waiting" if state == "idle" and cause != "no_work" else state


def state_words(text: Text, state: str) -> str:
    """A state in the reader's language, its own name where it is a new one."""
    return text.or_else(f"gpu.{state}", state)


def drawn_stretches(idle: GpuIdle) -> list[GpuStretch]:
    """All stretches; where they are too many to send, the coarser cells of every GPU, those alike put together."""
    if idle.stretches_shown == idle.stretches_total:
        return idle.stretches
    found = []
    since, until = int(idle.since_unix_ns), int(idle.until_unix_ns)
    for lane in idle.lanes:
        count = len(lane.cells)
        edges = [since + (until - since) * n // count for n in range(count + 1)]
        at = 0
        for (state, cause), group in groupby(lane.cells, lambda cell: (cell.state, cell.cause)):
            length = len(list(group))
            begin, end = edges[at], edges[at + length]
            found.append(GpuStretch(lane.gpu, lane.replica, state, cause, str(begin), end - begin))
            at += length
    return found


def ribbon_chart(text: Text, idle: GpuIdle) -> Any:
    """Every stretch is a bar; its words name the cause."""
    stretches = drawn_stretches(idle)
    gpus = sorted({one.gpu for one in stretches}, reverse=True)
    layout = base_layout(int(idle.since_unix_ns), int(idle.until_unix_ns), idle.cell_ns, f"ribbon/{idle.since_unix_ns}")
    layout.update({"barmode": "overlay", "hovermode": "closest", "margin": {"l": 110, "r": 8, "t": 4, "b": 22}})
    layout["yaxis"] = axis(type="category", categoryarray=[gpu[:12] for gpu in gpus], fixedrange=True)
    by_state: dict[str, list[Any]] = defaultdict(list)
    for one in stretches:
        by_state[shown_state(one.state, one.cause)].append(one)
    traces = [
        {
            "type": "bar", "orientation": "h", "name": state_words(text, state),
            "y": [one.gpu[:12] for one in found], "base": [iso(one.start_unix_ns) for one in found],
            "x": [one.duration_ns / 1e6 for one in found], "width": 0.72,
            "marker": {"color": f"var(--gpu-{state.replace('_', '-')})", "line": {"width": 0},
                       "pattern": {"shape": _PATTERNS.get(state, ""), "fgcolor": "var(--panel)", "size": 5,
                                   "fillmode": "overlay", "solidity": 0.2}},
            "customdata": [
                f"{state_words(text, state)}{': ' + text.cause(one.cause) if one.cause else ''}<br>"
                f"{clock(one.start_unix_ns)[:8]} + {duration(one.duration_ns)}" for one in found
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
        for state, found in by_state.items()
    ]  # fmt: skip
    cells = max((len(lane.cells) for lane in idle.lanes), default=1)
    parts = duration((int(idle.until_unix_ns) - int(idle.since_unix_ns)) // cells)
    caption = (
        text("showing", shown=f"{idle.stretches_shown:,}", total=f"{idle.stretches_total:,}")
        if stretches is idle.stretches
        else text("gpus.ribbon.parts", cell=parts, total=f"{idle.stretches_total:,}")
    )
    return chart("ribbon", text("gpus.ribbon"), caption, {"data": traces, "layout": layout}, wide=True,
                 height=_ROW * len(gpus) + 44)  # fmt: skip
