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
        self.tree = orjson.dumps(tree).decode()


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
    if node._namespace != _HTML:
        _still_children(node)
        return False, node
    props = _props(node)
    children = props.pop("children", None)
    listed: Sequence[Any] = children if isinstance(children, (list, tuple)) else [children]
    found = [_stilled(child) for child in listed]
    if "id" not in props and all(plain for plain, _ in found):
        return True, [node._type.lower(), props or None, *(tree for _, tree in found if tree is not None)]
    made = [Still(tree) if plain and isinstance(tree, list) else tree for plain, tree in found]
    if children is not None:
        node.children = made if isinstance(children, (list, tuple)) else made[0]
    return False, node


def _props(node: Any) -> dict[str, Any]:
    return dict(node.to_plotly_json()["props"])


def _still_children(node: Any) -> None:
    """The plain children of a component that is none of HTML's."""
    children = getattr(node, "children", None)
    if isinstance(children, (list, tuple, Component)):
        node.children = stilled(children)
