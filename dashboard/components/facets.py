"""Values of the requests that match, each a link that narrows the list to it, or opens it again."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.analytics.queries.facets import Facet, Facets
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.format import count, share
from tailtrace.dashboard.text import Text

_PATH = "/requests"


def facet_list(text: Text, address: Address, found: Facets) -> Any:
    """A column of facets, with shares as bars; one that says nothing (a single value, not chosen) is left out."""
    told = [one for one in found.facets if one.distinct > 1 or getattr(address, one.name)]
    return html.Aside(
        [_facet(text, address, one, found.total) for one in told],
        className="tt-facets",
        **aria(label=text("facets")),
    )


def _facet(text: Text, address: Address, one: Facet, total: int) -> Any:
    chosen = getattr(address, one.name)
    rows = []
    for value in one.values:
        part = value.requests / total if total else 0.0
        words = text.value(one.name, value.value)
        on = value.value == chosen
        rows.append(
            link(
                [
                    html.Span(words, className="tt-facet-name"),
                    html.Span(share(part), className="tt-facet-share"),
                    html.I(className="tt-facet-bar", style={"width": f"{100 * part:.1f}%"}),
                ],
                href=address.href(_PATH, cursor=None, **{one.name: None if on else value.value}),
                className="tt-facet" + (" is-on" if on else ""),
                title=f"{value.value}: {text('overview.requests', n=count(value.requests))}",
                **aria(current="true" if on else None),
            )
        )
    more = one.distinct - len(one.values)
    return html.Section(
        [
            html.H3(text(f"column.{one.name}")),
            *rows,
            html.Span(text("facets.more", n=count(more)), className="tt-caption") if more > 0 else None,
        ]
    )
