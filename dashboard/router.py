"""From URL to page: one callback draws the page that the address names; nothing is kept between calls."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import dash_mantine_components as dmc
from dash import ALL, MATCH, ClientsideFunction, Input, Output, State, ctx, dcc, html

from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.shell import shell
from tailtrace.dashboard.pages import page_for
from tailtrace.dashboard.text import Text, text_of_request
from tailtrace.errors import TailtraceError
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_log = logging.getLogger(__name__)

_THEME: Final = {
    "fontFamily": "var(--tt-font)",
    "fontFamilyMonospace": "var(--tt-mono)",
    "defaultRadius": "sm",
    "primaryColor": "blue",
}


def add_router(dash: Any, store: Store, settings: ServerSettings) -> None:
    """Layout and callbacks of the whole application."""
    dash.layout = _layout()

    # Sync callbacks would run on the event loop itself, so the queries go to a thread and the callback awaits them.
    @dash.callback(  # type: ignore[untyped-decorator]
        Output("root", "children"),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("tick", "data"),
        prevent_initial_call=False,
    )
    async def draw(pathname: str, search: str, tick: Any) -> Any:
        text = text_of_request(ctx.headers.get("accept-language", ""), ctx.cookies)
        return await asyncio.to_thread(_draw, store, settings, text, pathname or "/", search or "")

    for name, arguments, lazy in _clientside():
        dash.clientside_callback(ClientsideFunction("tailtrace", name), *arguments, prevent_initial_call=lazy)


def _draw(store: Store, settings: ServerSettings, text: Text, pathname: str, search: str) -> Any:
    address = Address.parse(search)
    page = page_for(pathname)
    try:
        body = page.draw(store, settings, text, pathname, address)
        state = shell(store, text, pathname, address, page, body)
    except TailtraceError as error:
        return shell(None, text, pathname, address, page, _failed(text, str(error)))
    except Exception:
        # Dash answers 500 and says nothing; the reader gets a page and the log gets the reason.
        _log.exception("page %s could not be drawn", pathname)
        return shell(None, text, pathname, address, page, _failed(text, text("failed.unexpected")))
    return state


def _failed(text: Text, reason: str) -> Any:
    return html.Div([html.H1(text("failed.title")), html.P(reason)], className="tt-notice", role="alert")


def _layout() -> Any:
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="tick", data=0),
            dcc.Store(id="theme"),
            dcc.Interval(id="clock", interval=1000),
            html.Div(id="root", className="tt-root"),
        ],
        theme=_THEME,
        defaultColorScheme="auto",
    )


def _clientside() -> list[tuple[str, tuple[Any, ...], bool]]:
    """Functions of assets/b_callbacks.js: name, dependencies, whether the first call is left out."""
    filters = {"type": "filter", "key": ALL}
    return [
        (
            "tick",
            (
                Output("tick", "data"),
                Input("clock", "n_intervals"),
                State({"type": "refresh", "key": ALL}, "value"),
                State("tick", "data"),
            ),
            True,
        ),
        (
            "filter",
            (Output("url", "search"), Input(filters, "value"), State(filters, "id"), State("url", "search")),
            True,
        ),
        (
            "figure",
            (
                Output({"type": "graph", "name": MATCH}, "figure"),
                Input({"type": "figure", "name": MATCH}, "data"),
                Input("theme", "data"),
            ),
            False,
        ),
        (
            "zoom",
            (
                Output("url", "search", allow_duplicate=True),
                Input({"type": "graph", "name": ALL}, "relayoutData"),
                State("url", "search"),
            ),
            True,
        ),
        ("waterfall", (Output("waterfall", "title"), Input("waterfall-spec", "data")), False),
    ]
