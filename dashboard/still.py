"""Parts of a page that only show something, as one component.

Dash makes every element a component that listens to the whole page's state, which a list of 50 requests (1,300
elements) pays for at every look. What has no id is not spoken of by any callback: such a subtree is sent as plain lists
and drawn by assets/b_still.js with the same elements and attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson
from dash.development.base_component import Component

_HTML: Final = "dash_html_components"
# What Dash keeps on a component besides its attributes.
_NO_PROPS: Final = ("_", "available_")
_SCRIPTS_ALONE: Final = ("box", "showing", "verdict", "words")


class Still(Component):
    """`tree` is [tag, attributes or null, child, ...] as JSON, where a child is such a tree, text or a number, and
    attributes are named as React names them. As text it is neither walked through by Dash nor drawn again while it
    stays the same.
    """

    _namespace = "tailtrace"
    _type = "Still"
    _prop_names: list[str] = ["tree"]
    _valid_wildcard_attributes: list[str] = []

    def __init__(self, tree: list[Any]) -> None:
        # Dash keeps an element's data- and aria- attributes in a set, in an order that differs between processes.
        self.tree = orjson.dumps(tree, option=orjson.OPT_SORT_KEYS).decode()


class Chart(Component):
    """A figure of Plotly as JSON (see assets/c_chart.js), `height` pixels high; `key` tells it from its neighbours.
    Figures `over_time` have bars, lines or a heatmap over one axis of time, and need no Plotly.
    """

    _namespace = "tailtrace"
    _type = "Chart"
    _prop_names: list[str] = ["figure", "config", "height", "key", "over_time"]
    _valid_wildcard_attributes: list[str] = []

    def __init__(
        self, figure: dict[str, Any], config: dict[str, Any], height: int, key: str, over_time: bool = False
    ) -> None:
        self.figure = orjson.dumps(figure).decode()
        self.config = config
        self.height = height
        self.key = key
        self.over_time = over_time


class SavedViews(Component):
    """The place that assets/i_saved_views.js fills, with its words."""

    _namespace = "tailtrace"
    _type = "SavedViews"
    _prop_names: list[str] = ["words"]
    _valid_wildcard_attributes: list[str] = []

    def __init__(self, words: dict[str, str]) -> None:
        self.words = words


class Body(Component):
    """What a page shows: `tree` if all of it is still, so that its next drawing changes only what differs; else
    `children`, which Dash draws anew each time.
    """

    _namespace = "tailtrace"
    _type = "Body"
    _prop_names: list[str] = ["id", "tree", "children"]
    _valid_wildcard_attributes: list[str] = []

    def __init__(self, children: Any, id: str) -> None:
        self.children = children
        self.id = id
        self.tree = None


def body_of(node: Any, page: str) -> tuple[str | None, Any]:
    """`tree` and `children` of a `Body` that shows `node`; of another `page` nothing of the last one is kept."""
    node.key = page
    found = stilled(node)
    return (found.tree, None) if isinstance(found, Still) else (None, found)


def stilled(node: Any) -> Any:
    """The same page, or list of its parts, with every largest subtree that has no id, and nothing but HTML in it, as
    one `Still`.
    """
    if isinstance(node, (list, tuple)):
        return [stilled(one) for one in node]
    plain, found = _stilled(node)
    return Still(found) if plain and isinstance(found, list) else found


def _stilled(node: Any) -> tuple[bool, Any]:
    """Whether all of `node` is plain, and then its tree, else `node` with its plain parts as `Still`."""
    if not isinstance(node, Component):
        return not isinstance(node, (list, tuple)), node
    if isinstance(node, (Chart, SavedViews)):
        return True, [node._type, _props(node)]
    if node._namespace != _HTML:
        _still_children(node)
        return False, node
    props = _props(node)
    children = props.pop("children", None)
    listed: Sequence[Any] = children if isinstance(children, (list, tuple)) else [children]
    found = [_stilled(child) for child in listed]
    if _unspoken(props.get("id")) and all(plain for plain, _ in found):
        return True, [node._type.lower(), props or None, *(tree for _, tree in (found if children is not None else []))]
    made = [Still(tree) if plain and isinstance(tree, list) else tree for plain, tree in found]
    if children is not None:
        node.children = made if isinstance(children, (list, tuple)) else made[0]
    return False, node


def _unspoken(identity: Any) -> bool:
    """Whether no callback speaks of an element: it has no id, or one that only links and scripts use."""
    return identity is None or identity in _SCRIPTS_ALONE


def _props(node: Any) -> dict[str, Any]:
    """Its attributes as they were set. Dash's own way asks for each of the eighty that HTML knows."""
    return {name: value for name, value in vars(node).items() if not name.startswith(_NO_PROPS)}


def _still_children(node: Any) -> None:
    """The plain children of a component that is none of HTML's."""
    children = getattr(node, "children", None)
    if isinstance(children, (list, tuple, Component)):
        node.children = stilled(children)
