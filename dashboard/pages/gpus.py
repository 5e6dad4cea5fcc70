"""GPUs and hosts: busy or idle second by second, and for what; counters beside latency, tokens and queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries import series
from tailtrace.analytics.queries.counters import Lane, Lanes, Line, gpu_lanes, gpus_of, step_lanes
from tailtrace.analytics.queries.gpu_idle import GpuIdle, gpu_idle
from tailtrace.analytics.queries.host_counters import host_lanes, hosts_of
from tailtrace.analytics.queries.series import Series
from tailtrace.analytics.queries.together import together
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.lanes import lanes_chart
from tailtrace.dashboard.components.page import notice, page_head, panel, scope_of, service_controls, table
from tailtrace.dashboard.components.ribbon import ribbon_chart, shown_state, state_words
from tailtrace.dashboard.format import duration, share
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/gpus"
_POINTS: Final = 240
_LEAST_STEP: Final = 1_000_000_000


def controls(store: Store, text: Text, address: Address) -> Any:
    return service_controls(store, text, address, engines=True)


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    scope = scope_of(store, address, engines=True)
    if scope is None:
        return first_run(text, settings)
    since, until = scope.window.since_ns, scope.window.until_ns
    step = max(_LEAST_STEP, (until - since) // _POINTS)
    gpus = gpus_of(store, scope.service, since, until)
    calls: list[Callable[[], Any]] = [
        partial(gpu_idle, store, scope.service, since, until),
        partial(gpu_lanes, store, gpus, since, until, step),
        partial(step_lanes, store, since, until, step, service=scope.service),
        partial(series, store, scope.window, scope.service, is_root=None),
        partial(host_lanes, store, hosts_of(store, scope.service, since, until), since, until, step),
    ]
    idle, counters, steps, latency, hosts = together(calls)
    return html.Div(
        [
            page_head(text, address, _PATH, text("nav.gpus"), scope),
            _totals(text, idle),
            ribbon_chart(text, idle) if idle.stretches else None,
            _lanes(text, latency, counters, steps, since, until),
            _hosts(text, hosts, since, until),
            _absent(text, counters, bool(gpus)),
        ],
        className="tt-page",
    )


def _totals(text: Text, idle: GpuIdle) -> Any:
    if not idle.totals:
        why = text.listed(idle.missing)
        return notice(text("gpus.none"), text("gpus.none.hint"), text("verdict.missing", what=why) if why else None)
    heads = [(text("gpus.state"), ""), (text("gpus.cause"), ""), (text("gpus.time"), "is-number"),
             (text("column.share"), "is-number"), ("", "is-share")]  # fmt: skip
    shown = [shown_state(one.state, one.cause) for one in idle.totals]
    rows = [
        [
            state_words(text, state), text.cause(one.cause) if one.cause else "", duration(one.ns),
            share(one.share),
            html.Div(className="tt-share", style={"width": f"{100 * one.share:.1f}%",
                                                  "background": f"var(--gpu-{state.replace('_', '-')})"}),
        ]
        for one, state in zip(idle.totals, shown, strict=True)
    ]  # fmt: skip
    caption = text("gpus.caption", gpus=idle.gpus, cell=duration(idle.cell_ns))
    missing = html.P(text("verdict.missing", what=text.listed(idle.missing)), className="tt-muted")
    return panel(text("gpus.where"), caption, table(heads, rows), missing if idle.missing else None)


def _lanes(text: Text, latency: Series, counters: Lanes, steps: Lanes, since: int, until: int) -> Any:
    """Latency, tokens and queue share the axis with the counters: utilisation alone says little."""
    lanes = [_latency(latency), *steps.lanes, *counters.lanes]
    shown = [lane for lane in lanes if lane.lines]
    return (
        lanes_chart(text, "lanes", text("gpus.lanes"), text("gpus.lanes.hint"), shown, since, until) if shown else None
    )


def _hosts(text: Text, hosts: Lanes, since: int, until: int) -> Any:
    """Event loops, threads, links of the hosts; a sentence where no sampler runs there."""
    if not hosts.lanes:
        return panel(text("hosts.title"), "", html.P(text("hosts.none"), className="tt-muted"))
    return lanes_chart(text, "hosts", text("hosts.title"), text("gpus.lanes.hint"), hosts.lanes, since, until)


def _latency(data: Series) -> Lane:
    lines = []
    for name, points in zip(("P50", "P95"), data.percentiles, strict=False):
        known = [(time, point.value_ns) for time, point in zip(data.times_unix_ns, points, strict=True)]
        kept = [(time, value / 1e9) for time, value in known if value is not None]
        lines.append(Line(name, [time for time, _ in kept], [value for _, value in kept]))
    return Lane("latency", "s", data.step_ns, [line for line in lines if line.values])


def _absent(text: Text, counters: Lanes, gpus: bool) -> Any:
    if not counters.absent:
        return None
    rows = [
        [
            text(f"lane.{lane}"),
            text.or_else(f"absent.{reason}", reason) or text("gpus.absent.unknown" if gpus else "gpus.absent.no_gpu"),
        ]
        for lane, reason in counters.absent.items()
    ]
    return panel(text("gpus.absent"), text("gpus.absent.hint"),
                 table([(text("gpus.quantity"), ""), (text("gpus.reason"), "")], rows))  # fmt: skip
