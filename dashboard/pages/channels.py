"""Channels: who is told. Addresses and secrets are never shown again."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from dash import html

from tailtrace.analytics.alerting import book
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.action import action
from tailtrace.dashboard.components.form import Field, form
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import notice, panel, table, tag
from tailtrace.dashboard.format import count
from tailtrace.dashboard.permission import may_write, read_only_note
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/channels"
_FIELDS: Final = (
    Field("name", required=True), Field("kind", "choice", ("webhook", "apprise")), Field("url", "secret"),
    Field("url_env"), Field("secret", "secret"), Field("secret_env"),
)  # fmt: skip


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    kept = book.load(store, settings.alerts_file)
    new = link(text("channels.new"), href=Address(state="new").href(_PATH), className="tt-button is-small")
    parts: list[Any] = [
        html.Div([html.H1(text("nav.channels")), new if may_write() else None], className="tt-page-head"),
        read_only_note(text),
    ]
    chosen = kept.channels.get(address.id)
    if may_write() and (address.state == "new" or (chosen and ("channel", chosen.name) not in kept.fixed)):
        parts.append(_form(text, chosen))
    parts.append(_list(text, kept) if kept.channels else notice(text("channels.none"), text("channels.none.hint")))
    return html.Div(parts, className="tt-page")


def _list(text: Text, kept: book.Book) -> Any:
    heads = [(text("form.name"), ""), (text("channel.kind"), ""), (text("channel.url"), ""),
             (text("channels.signed"), ""), ("", "")]  # fmt: skip
    rows = []
    for name, channel in sorted(kept.channels.items()):
        shown = channel.shown()
        signed = tag(text("channels.signed"), "good") if shown["signed"] else tag(text("channels.unsigned"))
        rows.append([name, shown["kind"], shown["url"], signed, _actions(text, kept, name)])
    return panel(text("channels.all"), count(len(rows)), table(heads, rows))


def _actions(text: Text, kept: book.Book, name: str) -> Any:
    path = f"/api/v1/channels/{quote(name, safe='')}"
    test = action(text("channels.test"), f"{path}/test", good=text("channels.delivered"))
    if ("channel", name) in kept.fixed or not may_write():
        fixed = html.Span(text("rules.fixed"), className="tt-muted") if ("channel", name) in kept.fixed else None
        return html.Div([test, fixed], className="tt-ids")
    edit = link(text("form.change"), href=Address(id=name).href(_PATH), className="tt-button is-small")
    remove = action(
        text("form.delete"), path, method="DELETE", body="", confirm=text("form.sure", name=name), then=_PATH
    )
    return html.Div([test, edit, remove], className="tt-ids")


def _form(text: Text, chosen: Any) -> Any:
    """Of a known channel only what may be shown is filled in; what stays empty stays as it was."""
    fresh = chosen is None
    fields = _FIELDS if fresh else tuple(one for one in _FIELDS if one.name != "name")
    values = {} if fresh else {"kind": chosen.kind, "url_env": chosen.url_env, "secret_env": chosen.secret_env}
    method, path = ("POST", "/api/v1/channels") if fresh else ("PUT", "/api/v1/channels/{name}")
    title = text("channels.new") if fresh else text("form.edit", name=chosen.name)
    return panel(
        title, text("channels.hint"),
        form(text, "channel", fields, values, method=method, path=path, then=_PATH,
             fixed={} if fresh else {"name": chosen.name}),
    )  # fmt: skip
