"""The texts of a page as the server draws it, for tests that need no browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from dash.development.base_component import Component

PROSE = ("children", "title", "placeholder", "aria-label", "label")
FIGURE = ("text", "name", "hovertext", "customdata", "ticktext")


def words_of(node: Any) -> Iterator[str]:
    """Every text that a tree of components shows or says, code apart."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, (list, tuple)):
        for one in node:
            yield from words_of(one)
    elif isinstance(node, Component):
        if node._type in ("Code", "Pre"):
            return
        props = node.to_plotly_json()["props"]
        for name in PROSE:
            yield from words_of(props.get(name))
        if node._type == "Chart":
            yield from figure_words(orjson.loads(props["figure"]))
        for option in props.get("data") or () if isinstance(props.get("data"), list) else ():
            yield from words_of(option.get("label"))


def figure_words(figure: Any) -> Iterator[str]:
    """The same of a chart."""
    if isinstance(figure, dict):
        for key, value in figure.items():
            yield from (words_of(value) if key in FIGURE and isinstance(value, (str, list)) else figure_words(value))
    elif isinstance(figure, list):
        for one in figure:
            yield from figure_words(one)
