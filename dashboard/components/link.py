"""Links inside the application: real anchors, so that middle click and copying work; the browser script spares the
reload.
"""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.dashboard.components.attributes import data


def link(children: Any, href: str, className: str = "", **attributes: Any) -> Any:  # noqa: N803 (Dash's own name)
    """An anchor to a page of this application (assets/a_base.js follows it without loading anew)."""
    return html.A(children, href=href, className=className, **data(nav="1"), **attributes)
