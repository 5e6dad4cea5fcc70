"""Settings: what the reader chooses (theme, language, zone) and what the server was started with."""

from __future__ import annotations

from typing import Any, Final

from dash import html

from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.page import panel, table, tag
from tailtrace.dashboard.format import DASH, byte_count, zone_name
from tailtrace.dashboard.permission import may_write
from tailtrace.dashboard.text import LANGUAGES, Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.ingest.tokens import TokenFile, Tokens, described, tokens_file
from tailtrace.version import VERSION

_ZONES: Final = ("UTC", "own", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "America/Los_Angeles")


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    return html.Div(
        [
            html.Div([html.H1(text("nav.settings"))], className="tt-page-head"),
            html.Div([_yours(text), _server(text, settings)], className="tt-two"),
            _tokens(text, settings) if may_write() else None,
            panel(text("settings.mcp"), "", html.P(text("settings.mcp.hint")), _command(text, settings)),
        ],
        className="tt-page",
    )


def _yours(text: Text) -> Any:
    zones = [
        html.Button(
            text("settings.zone.own") if name == "own" else name,
            className="tt-button is-small", **data(zone=name), **aria(pressed=str(name == zone_name()).lower()),
        )
        for name in _ZONES
    ]  # fmt: skip
    languages = [
        html.Button(
            name,
            className="tt-button is-small",
            **data(language=code),
            **aria(pressed=str(code == text.language).lower()),
        )
        for code, name in LANGUAGES.items()
    ]
    themes = [
        html.Button(text(f"settings.theme.{name}"), className="tt-button is-small", **data(theme=name))
        for name in ("light", "dark", "auto")
    ]
    return panel(
        text("settings.yours"), text("settings.yours.hint"),
        html.H3(text("language")), html.Div(languages, className="tt-ids"),
        html.H3(text("settings.zone", zone=zone_name())), html.Div(zones, className="tt-ids"),
        html.H3(text("settings.theme")), html.Div(themes, className="tt-ids"),
    )  # fmt: skip


def _server(text: Text, settings: ServerSettings) -> Any:
    asked = Tokens(settings).required()
    token = tag(text("settings.token.set"), "good") if asked else tag(text("settings.token.none"), "warn")
    facts: list[tuple[str, Any]] = [
        (text("settings.version"), VERSION),
        (text("settings.token"), token),
        (text("settings.address"), f"{settings.host}:{settings.port}"),
        ("OTLP/HTTP", f"{settings.host}:{settings.otlp_http_port}"),
        (
            "OTLP/gRPC",
            f"{settings.host}:{settings.otlp_grpc_port}" if settings.otlp_grpc_port else text("settings.off"),
        ),
        (text("health.storage"), byte_count(settings.storage_budget_bytes)),
    ]
    return panel(
        text("settings.server"), text("settings.server.hint"),
        html.Dl([html.Div([html.Dt(name), html.Dd(value)]) for name, value in facts], className="tt-conditions"),
        html.A("OpenAPI", href="/api/v1/openapi.json", target="_blank"),
    )  # fmt: skip


def _tokens(text: Text, settings: ServerSettings) -> Any:
    """Who holds one, and how to give or take one back: by command only, so that no page ever shows a secret."""
    rows = [
        [said["name"], said["scopes"].replace(",", ", "), said["created"].replace("T", " ")]
        for said in map(described, TokenFile(tokens_file(settings)).entries())
    ]
    if settings.token:
        rows.insert(0, ["TAILTRACE_TOKEN", "admin", DASH])
    heads = [(text("form.name"), ""), (text("settings.scopes"), ""), (text("settings.created"), "")]
    commands = "tailtrace token create NAME --scope read\ntailtrace token revoke NAME"
    return panel(
        text("settings.tokens"), "", table(heads, rows) if rows else html.P(text("settings.no_tokens")),
        html.P(text("settings.tokens.hint"), className="tt-muted"), _copied(text, commands),
    )  # fmt: skip


def _command(text: Text, settings: ServerSettings) -> Any:
    command = f'{{"mcpServers": {{"tailtrace": {{"type": "http", "url": "http://127.0.0.1:{settings.port}/mcp"}}}}}}'
    return _copied(text, command)


def _copied(text: Text, command: str) -> Any:
    return html.Div(
        [html.Pre(command), html.Button(text("copy.short"), className="tt-button is-small", **data(copy=command))],
        className="tt-command",
    )
