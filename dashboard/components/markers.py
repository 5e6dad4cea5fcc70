"""Deploys and changes as vertical lines on a chart over time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from tailtrace.analytics.queries.recorded import RecordedChange, RecordedMarker
from tailtrace.dashboard.format import DASH, clock, iso
from tailtrace.dashboard.text import Text

_MOST: Final = 12  # more lines than that are a fence
_WORDS: Final = 20


def mark(figure: dict[str, Any], text: Text, markers: Sequence[RecordedMarker],
         changes: Sequence[RecordedChange] = (), service: str = "") -> dict[str, Any]:  # fmt: skip
    """The figure of a service with a dotted line a deploy, named at its head, and a dashed one where a change began.
    A deploy of another service says whose it is: what it calls makes it slower too.
    """
    layout = figure["layout"]
    lines = [_line(one.time_unix_ns, "var(--muted)", "dot") for one in markers[:_MOST]]
    lines += [_line(one.onset_unix_ns, "var(--bad)", "dash") for one in changes[:_MOST]]
    names = [_name(one.time_unix_ns, _short(one, service), marker_words(text, one), "var(--muted)")
             for one in markers[:_MOST]]  # fmt: skip
    names += [_name(one.onset_unix_ns, "▲", change_words(text, one), "var(--bad)", 0.88) for one in changes[:_MOST]]
    layout["shapes"] = [*layout.get("shapes", []), *lines]
    layout["annotations"] = [*layout.get("annotations", []), *names]
    return figure


def marker_words(text: Text, one: RecordedMarker) -> str:
    """`13:05:00 llm Service version 1.4 → 1.5`, or what the API was told."""
    kind = text.or_else(f"condition.{one.kind}", one.kind)
    whose = f"{one.service} " if one.service else ""
    return f"{clock(one.time_unix_ns)[:8]} {whose}" + (one.text or f"{kind} {one.was or DASH} → {one.became}")


def change_words(text: Text, one: RecordedChange) -> str:
    """`13:05:00 TTFT slower: queue`."""
    metric = text.or_else(f"chart.{one.metric}", one.metric)
    stage = f": {text.stage(one.stage)}" if one.stage else ""
    return f"{clock(one.onset_unix_ns)[:8]} {metric}{stage}"


def _line(unix_ns: str, colour: str, dash: str) -> dict[str, Any]:
    time = iso(unix_ns)
    return {"type": "line", "x0": time, "x1": time, "yref": "paper", "y0": 0, "y1": 1, "layer": "above",
            "line": {"color": colour, "width": 1.2, "dash": dash}}  # fmt: skip


def _name(unix_ns: str, words: str, hover: str, colour: str, y: float = 1.0) -> dict[str, Any]:
    # Plotly reads a little HTML in these texts, and telemetry wrote some of them.
    return {"x": iso(unix_ns), "yref": "paper", "y": y, "yanchor": "top", "xanchor": "left", "showarrow": False,
            "text": escape(words, quote=False), "hovertext": escape(hover[:200], quote=False),
            "font": {"size": 10, "color": colour}, "bgcolor": "var(--panel)", "opacity": 0.9}  # fmt: skip


def _short(one: RecordedMarker, service: str) -> str:
    words = one.text or one.became
    words = f"{one.service} {words}" if one.service not in ("", service) else words
    return words if len(words) <= _WORDS else words[: _WORDS - 1] + "…"
