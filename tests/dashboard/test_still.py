"""What only shows something is sent as plain lists; what callbacks speak of stays Dash's."""

from __future__ import annotations

import json
from typing import Any

from dash import dcc, html

from tailtrace.dashboard.still import Chart, Still, body_of, stilled


def tree(component: Any) -> Any:
    assert isinstance(component, Still)
    return json.loads(component.tree)


def test_a_plain_subtree_is_one_component() -> None:
    row = html.Tr([html.Td("a", className="x", **{"data-n": "1"}), None, html.Td(2)], title="t")
    assert tree(stilled(row)) == [
        "tr", {"title": "t"}, ["td", {"className": "x", "data-n": "1"}, "a"], None, ["td", None, 2],
    ]  # fmt: skip
    assert tree(stilled(html.Hr())) == ["hr", None]


def test_what_a_callback_speaks_of_stays_and_its_plain_neighbours_are_one_each() -> None:
    live = html.Div(id={"type": "later", "name": "x"})
    page = stilled(html.Div([html.P(html.B("before")), html.Section([live, html.I("beside")]), "text"]))
    before, section, text = page.children
    assert tree(before) == ["p", None, ["b", None, "before"]]
    assert section.children[0] is live
    assert tree(section.children[1]) == ["i", None, "beside"]
    assert text == "text"
    assert isinstance(stilled(dcc.Store(id="s")), dcc.Store)


def test_an_id_that_only_scripts_use_is_an_attribute() -> None:
    assert tree(stilled(html.Span("50", id="showing"))) == ["span", {"id": "showing"}, "50"]


def test_a_chart_is_part_of_the_tree() -> None:
    found = tree(stilled(html.Div(Chart({"data": [{"y": [1, None]}]}, {"responsive": True}, 190, "rate"))))
    name, attributes = found[2]
    assert (name, attributes["height"], attributes["key"]) == ("Chart", 190, "rate")
    assert json.loads(attributes["figure"]) == {"data": [{"y": [1, None]}]}


def test_a_body_is_a_tree_only_if_all_of_it_is_still() -> None:
    plain, live = html.P("a"), html.Div([html.P("a"), dcc.Store(id="s")])
    assert body_of(plain, "/x") == ('["p",{"key":"/x"},"a"]', None)
    assert body_of(live, "/x") == (None, live)
