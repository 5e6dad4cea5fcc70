"""From URL to page: one callback draws what the address names; nothing is kept between calls.

Controls are drawn again only when the page or its range changes, so an answer that is still on its way never takes back
what the reader has typed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import dash_mantine_components as dmc
from dash import ALL, MATCH, ClientsideFunction, Input, Output, State, ctx, dcc, html, no_update
from plotly.io.json import to_json_plotly

from tailtrace.analytics.queries.together import together
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.shell import freshness_words, range_controls, sidebar
from tailtrace.dashboard.format import ZONE_COOKIE, use_zone
from tailtrace.dashboard.pages import page_for
from tailtrace.dashboard.parts import Part, parts
from tailtrace.dashboard.permission import use_permission
from tailtrace.dashboard.still import Body, body_of, stilled
from tailtrace.dashboard.text import Text, text_of_request
from tailtrace.dashboard.views import HEADER, use_view, was_stopped
from tailtrace.errors import TailtraceError
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.ingest.tokens import Tokens

_log = logging.getLogger(__name__)

# What a drawing sets.
_DRAWN: Final = (
    ("sidebar", "children"),
    ("range", "children"),
    ("controls", "children"),
    ("drawn", "data"),
    ("looked", "data"),
    ("body", "tree"),
    ("body", "children"),
)
_THEME: Final = {
    "fontFamily": "var(--tt-font)",
    "fontFamilyMonospace": "var(--tt-mono)",
    "defaultRadius": "sm",
    "primaryColor": "blue",
}


def add_router(dash: Any, store: Store, settings: ServerSettings) -> Callable[..., str]:
    """Layout and callbacks of the whole application; gives `first_drawing` of it."""
    dash.layout = _layout()
    known = parts(settings)
    tokens = Tokens(settings)

    # Sync callbacks would run on the event loop itself, so the queries go to a thread and the callback awaits them.
    @dash.callback(  # type: ignore[untyped-decorator]
        *(Output(*output) for output in _DRAWN),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("tick", "data"),
        State("drawn", "data"),
    )
    async def draw(pathname: str, search: str, tick: Any, drawn: Any) -> Any:
        text = _reader(tokens, ctx.headers, ctx.cookies, ctx.headers.get(HEADER, ""))
        return await asyncio.to_thread(_draw, store, settings, text, pathname or "/", search or "", drawn)

    # After the page, so that what it says is not waited for.
    @dash.callback(  # type: ignore[untyped-decorator]
        Output("fresh", "children"), Input("looked", "data"), prevent_initial_call=True
    )
    async def draw_fresh(looked: int) -> Any:
        text = _reader(tokens, ctx.headers, ctx.cookies, ctx.headers.get(HEADER, ""))
        return await asyncio.to_thread(_fresh, store, text)

    @dash.callback(  # type: ignore[untyped-decorator]
        Output({"type": "later", "name": MATCH}, "children"),
        Input({"type": "later-spec", "name": MATCH}, "data"),
        State({"type": "later-spec", "name": MATCH}, "id"),
    )
    async def draw_later(spec: dict[str, str], place: dict[str, str]) -> Any:
        text = _reader(tokens, ctx.headers, ctx.cookies, ctx.headers.get(HEADER, ""))
        return await asyncio.to_thread(_later, known, store, text, place["name"], spec)

    for name, arguments, lazy in _clientside():
        dash.clientside_callback(ClientsideFunction("tailtrace", name), *arguments, prevent_initial_call=lazy)
    return partial(first_drawing, store, settings, tokens)


def _reader(tokens: Tokens, headers: Mapping[str, str], cookies: Mapping[str, str], view: str) -> Text:
    """The words of who asks; zone, view and permission hold in this context from now on."""
    use_zone(cookies.get(ZONE_COOKIE, ""))
    use_view(view)
    use_permission(tokens, headers, cookies)
    return text_of_request(headers.get("accept-language", ""), cookies)


def first_drawing(
    store: Store,
    settings: ServerSettings,
    tokens: Tokens,
    headers: Mapping[str, str],
    cookies: Mapping[str, str],
    pathname: str,
    search: str,
    view: str,
) -> str:
    """What the drawing callback would answer to a page that has just been opened, as JSON. Call it in a context of its
    own.
    """
    text = _reader(tokens, headers, cookies, view)
    response: dict[str, dict[str, Any]] = {}
    for (name, attribute), value in zip(_DRAWN, _draw(store, settings, text, pathname, search, None), strict=True):
        response.setdefault(name, {})[attribute] = value
    return str(to_json_plotly({"multi": True, "response": response}))


def _draw(
    store: Store, settings: ServerSettings, text: Text, pathname: str, search: str, drawn: Any
) -> tuple[Any, ...]:
    """Sidebar, range, controls, what they were drawn for, when, body."""
    address = Address.parse(search)
    page = page_for(pathname)
    wanted = [pathname, address.range, address.since, address.until]
    frame: tuple[Any, ...] = (no_update,) * 4
    looked = time.time_ns()
    try:
        calls: list[Callable[[], Any]] = [partial(page.draw, store, settings, text, pathname, address)]
        if wanted != drawn and page.controls:
            calls.append(partial(page.controls, store, text, address))
        body, *controls = together(calls)
        if wanted != drawn:
            frame = (
                sidebar(text, address, page.key),
                range_controls(text, address) if page.ranged else None,
                controls[0] if controls else None,
                wanted,
            )
        return (*(stilled(one) for one in frame[:3]), frame[3], looked, *body_of(body, pathname))
    except TailtraceError as error:
        stopped = was_stopped(error)
        title, reason = ("stopped.title", text("stopped.body")) if stopped else ("failed.title", text.said(str(error)))
    except Exception:
        # Dash answers 500 and says nothing; the reader gets a page and the log gets the reason.
        _log.exception("page %s could not be drawn", pathname)
        title, reason = "failed.title", text("failed.unexpected")
    again = html.Button(text("failed.again"), className="tt-button", **data(again="1"))
    failed = html.Div([html.H1(text(title)), html.P(reason), again], className="tt-notice", role="alert")
    ranged = range_controls(text, address) if page.ranged else None
    return stilled(sidebar(text, address, page.key)), ranged, None, None, looked, *body_of(failed, pathname)


def _fresh(store: Store, text: Text) -> Any:
    """How complete the picture is; nothing where that cannot be told, as the page then says why."""
    try:
        return stilled(freshness_words(store, text))
    except TailtraceError:
        return None
    except Exception:
        _log.exception("freshness could not be drawn")
        return None


def _later(known: Mapping[str, Part], store: Store, text: Text, name: str, spec: dict[str, str]) -> Any:
    """A part of a page; what fails there leaves the rest as it is."""
    try:
        return stilled(known[name](store, text, spec))
    except TailtraceError as error:
        return html.P(text.said(str(error)), className="tt-muted")
    except Exception:
        _log.exception("%s of %s could not be drawn", name, spec)
        return html.P(text("failed.unexpected"), className="tt-muted")


def _skeleton() -> Any:
    """What stands there until the first answer: the shape of a page."""
    return html.Div([html.I() for _ in range(4)], className="tt-skeleton", **aria(hidden="true"))


def _layout() -> Any:
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="tick", data=0),
            dcc.Store(id="drawn"),
            dcc.Store(id="looked"),
            dcc.Interval(id="clock", interval=1000),
            html.Div(
                [
                    html.Div(id="sidebar", className="tt-sidebar"),
                    html.Div(
                        [
                            html.Header(
                                [
                                    html.Div(id="range", className="tt-range"),
                                    html.Div(id="fresh", className="tt-freshness"),
                                ],
                                className="tt-header",
                            ),
                            html.Main(
                                [html.Div(id="controls"), Body(_skeleton(), id="body")],
                                id="main",
                                className="tt-main",
                                tabIndex=-1,
                            ),
                        ],
                        className="tt-column",
                    ),
                ],
                className="tt-root",
            ),
        ],
        theme=_THEME,
        defaultColorScheme="auto",
    )


def _clientside() -> list[tuple[str, tuple[Any, ...], bool]]:
    """Functions of assets/b_callbacks.js: name, dependencies, whether the first call is left out."""
    filters = {"type": "filter", "key": ALL}
    refresh = State({"type": "refresh", "key": ALL}, "value")
    both = (Output("url", "search"), Input(filters, "value"), Input("url", "search"))
    return [
        ("tick", (Output("tick", "data"), Input("clock", "n_intervals"), refresh, State("tick", "data")), True),
        ("filter", (*both, State(filters, "id")), True),
        ("waterfall", (Output("waterfall", "title"), Input("waterfall-spec", "data")), False),
    ]
