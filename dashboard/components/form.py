"""Forms that the browser sends to the API as one JSON object (assets/g_actions.js); the page then draws itself anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dash import dcc, html

from tailtrace.analytics.queries import to_json
from tailtrace.dashboard.components.attributes import data
from tailtrace.dashboard.text import Text

Kind = Literal["text", "number", "list", "bool", "choice", "secret"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name in the JSON, what it holds, choices of a `choice`, whether it may stay empty."""

    name: str
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    required: bool = False


def form(text: Text, words: str, fields: Sequence[Field], values: Mapping[str, Any], *, method: str, path: str,
         then: str, fixed: Mapping[str, Any]) -> Any:  # fmt: skip
    """`words` is the prefix of the catalogue's labels and hints; `path` may hold {name}; `fixed` goes along unseen;
    after success the page `then` is opened.
    """
    return html.Form(
        [
            html.Div([_field(text, words, one, values.get(one.name)) for one in fields], className="tt-fields"),
            html.Div(
                [
                    html.Button(text("form.save"), type="submit", className="tt-button is-strong"),
                    html.A(text("form.cancel"), href=then, className="tt-button", **data(nav="1")),
                ],
                className="tt-ids",
            ),
        ],
        className="tt-edit",
        **data(send=path, method=method, then=then, fixed=to_json(dict(fixed)).decode()),
    )


def _field(text: Text, words: str, one: Field, value: Any) -> Any:
    label = text(f"{words}.{one.name}")
    hint = text.or_else(f"{words}.{one.name}.hint", "")
    return html.Label(
        [html.Span([label, html.B(" *") if one.required else None]), _control(text, one, value),
         html.Small(hint, className="tt-muted") if hint else None]
    )  # fmt: skip


def _control(text: Text, one: Field, value: Any) -> Any:
    name = f"{one.name}:{one.kind}"
    if one.kind in ("choice", "bool"):
        chosen = str(value).lower() if one.kind == "bool" else str(value or one.choices[0])
        choices = ("true", "false") if one.kind == "bool" else one.choices
        # The chosen one comes first: Dash has no `selected` for options.
        ordered = [choice for choice in choices if choice == chosen] + [one for one in choices if one != chosen]
        return html.Select(
            [html.Option(text.or_else(f"choice.{choice}", choice), value=choice) for choice in ordered],
            **data(name=name),
        )
    shown = ", ".join(value or ()) if one.kind == "list" else "" if value is None else str(value)
    return dcc.Input(
        name=name, value=shown, type="password" if one.kind == "secret" else "text", required=one.required,
        autoComplete="off", debounce=True,
    )  # fmt: skip
