"""The controls above the list of requests; each writes its key of the address."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries import Services
from tailtrace.analytics.queries.requests import ORDERS
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.request_table import COLUMNS, chosen_columns
from tailtrace.dashboard.text import Text

_FEW = 7
_OUTCOMES = ("ok", "error", "cancelled", "timeout", "rejected")


def request_filters(text: Text, address: Address, known: Services, path: str) -> Any:
    """Order, choices, bounds, free text, attribute search, columns."""
    chosen = [one for one in known.services if address.service in ("", one.service)]
    return html.Div(
        [
            dmc.Select(
                id={"type": "filter", "key": "order"},
                data=[{"value": order, "label": order_name(text, order)} for order in ORDERS],
                value=address.order if address.order in ORDERS else "newest",
                searchable=True,
                allowDeselect=False,
                size="xs",
                w=150,
                **aria(label=text("order.label")),
            ),
            select(text, "service", address.service, [one.service for one in known.services], 140),
            select(text, "model", address.model, sorted({model for one in chosen for model in one.models}), 150),
            select(text, "route", address.route, sorted({route for one in chosen for route in one.routes}), 150),
            select(text, "outcome", address.outcome, list(_OUTCOMES), 110),
            box(text, "min", address.min, 100),
            box(text, "max", address.max, 84),
            box(text, "text", address.text, 120),
            box(text, "where", address.where, 250, title=text("filter.where.hint")),
            dmc.SegmentedControl(
                id={"type": "filter", "key": "root"},
                data=[{"value": "true", "label": text("root.true")}, {"value": "any", "label": text("root.any")}],
                value="any" if address.root == "any" else "true",
                size="xs",
                **aria(label=text("root.label")),
            ),
            dmc.MultiSelect(
                id={"type": "filter", "key": "columns"},
                data=[{"value": name, "label": text(f"column.{name}")} for name in COLUMNS],
                value=list(chosen_columns(address)),
                leftSection=html.Span(text("filter.columns"), className="tt-caption"),
                leftSectionWidth=84,
                leftSectionPointerEvents="none",
                size="xs",
                w=112,
                className="tt-columns-choice",
                **aria(label=text("filter.columns")),
            ),
            link(
                text("filter.clear"),
                href=address.only("range", "since", "until").href(path),
                className="tt-button is-small",
            ),
        ],
        className="tt-filters",
        role="search",
    )


def order_name(text: Text, order: str) -> str:
    """What an order is called: its own word, else the stage's name."""
    if order in ("newest", "slowest"):
        return text(f"order.{order}")
    if order in ("ttft", "tpot"):
        return text("order.longest", what=text(f"column.{order}"))
    return text("order.longest", what=text.stage(order))


def select(text: Text, key: str, value: str, options: list[str], width: int) -> Any:
    """A choice that may be left open; a value that is not offered any more stays selectable."""
    listed = [option for option in options if option]
    if value and value not in listed:
        listed.append(value)
    return dmc.Select(
        id={"type": "filter", "key": key},
        data=[{"value": option, "label": text.outcome(option) if key == "outcome" else option} for option in listed],
        value=value or None,
        placeholder=text(f"filter.{key}"),
        clearable=True,
        searchable=len(listed) > _FEW,
        size="xs",
        w=width,
        **aria(label=text(f"filter.{key}")),
    )


def box(text: Text, key: str, value: str, width: int, *, title: str = "") -> Any:
    """A text input that writes its key a moment after the last key stroke; `title` explains it on hover."""
    field = dmc.TextInput(
        id={"type": "filter", "key": key},
        value=value,
        placeholder=text(f"filter.{key}"),
        debounce=400,
        size="xs",
        w=width,
        **aria(label=text(f"filter.{key}")),
    )
    return html.Div(field, title=title) if title else field
