"""GPU time of a window in one bar: working, idle for want of work, idle while requests wait, and for what."""

from __future__ import annotations

from typing import Any, Final

from dash import html

from tailtrace.analytics.queries.counters import gpus_of
from tailtrace.analytics.queries.gpu_idle import gpu_idle
from tailtrace.analytics.queries.window import HOUR_NS
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import panel, scope_of
from tailtrace.dashboard.components.ribbon import shown_state, state_words
from tailtrace.dashboard.format import duration, share
from tailtrace.dashboard.text import Text
from tailtrace.ingest.store import Store

_LONGEST_NS: Final = HOUR_NS  # of a longer range, its last hour


def draw_idle(store: Store, text: Text, spec: dict[str, str]) -> Any:
    """The panel of the service whose engine has the GPUs; nothing where no request names a GPU."""
    address = Address(since=spec["since"], until=spec["until"])
    scope = scope_of(store, address, engines=True)
    if scope is None or not gpus_of(store, scope.service, scope.window.since_ns, scope.window.until_ns):
        return None
    until = scope.window.until_ns
    found = gpu_idle(store, scope.service, max(scope.window.since_ns, until - _LONGEST_NS), until)
    if not found.totals:
        return None
    parts = [(shown_state(one.state, one.cause), one) for one in found.totals]
    waiting = [one for state, one in parts if state == "idle_waiting"]
    words = [f"{text.cause(one.cause)} {share(one.share)}" for one in waiting[:3]]
    spoken = ", ".join(f"{state_words(text, state)} {share(one.share)}" for state, one in parts)
    bar = html.Div(
        [
            html.Div(
                className="tt-bar-part" + (" is-hatched" if state == "idle_waiting" else ""),
                style={"flexGrow": one.ns, "background": f"var(--gpu-{state.replace('_', '-')})"},
                title=f"{state_words(text, state)} {text.cause(one.cause) if one.cause else ''}, {share(one.share)}",
            )
            for state, one in parts
        ],
        className="tt-bar", role="img", **aria(label=spoken),
    )  # fmt: skip
    told = text("idle.waiting", share=share(sum(one.share for one in waiting)), causes=text("list").join(words))
    key = [
        html.Span([html.I(className="tt-dot", style={"background": f"var(--gpu-{state.replace('_', '-')})"}),
                   f"{state_words(text, state)} {share(sum(one.share for other, one in parts if other == state))}"],
                  className="tt-chip")
        for state in dict(parts)
    ]  # fmt: skip
    more = link(text("nav.gpus"), href=Address(since=address.since, until=address.until, service=scope.service)
                .href("/gpus"), className="tt-button is-small")  # fmt: skip
    return panel(
        text("idle.title"), text("gpus.caption", gpus=found.gpus, cell=duration(found.cell_ns)), bar,
        html.Div([html.Div(key, className="tt-legend"), more], className="tt-table-foot"),
        html.P(told if waiting else text("idle.none"), className="tt-sentence" if waiting else "tt-muted"),
    )  # fmt: skip
