"""Diagnosis: why a service is slow, in the order in which an engineer would look, each step ruled in or out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries.clues import LogPattern
from tailtrace.analytics.queries.goals import goals_of
from tailtrace.analytics.queries.why import LAST_STEP, CauseShare, Side, Step, Why, why
from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import notice, page_head, panel, scope_of, service_controls, table, tag
from tailtrace.dashboard.components.verdict import evidence_table, verdict_panel
from tailtrace.dashboard.format import DASH, count, duration, moment, rate, share
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/diagnosis"
_LOGS: Final = 5
_STATES: Final = {"in": "bad", "out": "good", "no_data": "warn"}


def controls(store: Store, text: Text, address: Address) -> Any:
    return service_controls(store, text, address)


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    """The report of a window against the time before it."""
    scope = scope_of(store, address)
    if scope is None:
        return first_run(text, settings)
    goal = goals_of(settings.goals).get(scope.service)
    found = why(store, scope.service, scope.window.since_ns, scope.window.until_ns, goal=goal)
    slowest = address.only("range", "since", "until").href("/requests", service=scope.service, order="slowest")
    return html.Div(
        [
            page_head(text, address, _PATH, text("nav.diagnosis"), scope,
                      link(text("overview.slowest"), href=slowest, className="tt-button is-small")),
            _headline(text, found),
            _steps(text, found) if found.state != "too_few" else None,
            _sides(text, found),
        ],
        className="tt-page",
    )  # fmt: skip


def _steps(text: Text, found: Why) -> Any:
    rows = [_step(text, at + 1, step, _lines(found, step)) for at, step in enumerate(found.steps)]
    return panel(text("diagnosis.steps"), text("diagnosis.steps.hint"), *rows)


def _headline(text: Text, found: Why) -> Any:
    if found.state == "too_few":
        return notice(text("diagnosis.too_few"), text("diagnosis.too_few.hint"))
    was, now = found.before.mean_ns, found.during.mean_ns
    slower = text(
        f"diagnosis.{found.state}", excess=duration(abs(found.excess_ns)), relative=_times(found.relative),
        before=moment(found.before.since_unix_ns), was=duration(was), now=duration(now),
    )  # fmt: skip
    # A range that holds an end or a beginning of something differs more within itself than from what was before.
    varied = found.state == "as_before" and was and now and now > limit.SLOWER.value * was + was
    part = text(f"diagnosis.part.{found.slow_part}") if found.slow_part else ""
    return html.Section(
        [
            html.P([slower, " ", part], className="tt-sentence"),
            html.P(text("diagnosis.varied"), className="tt-muted") if varied else None,
            verdict_panel(text, found.verdict) if found.verdict else None,
        ],
        className="tt-panel tt-list",
    )


def _times(relative: float) -> str:
    """`34 %` more, `×4.4` in all where it more than doubled."""
    return f"×{1 + relative:.1f}" if relative >= 1 else share(abs(relative))


def _lines(found: Why, step: Step) -> list[LogPattern]:
    """The log lines that belong to a step: those of the last, which is about them."""
    return found.clues.patterns[:_LOGS] if found.clues and step.step == LAST_STEP else []


def _log(text: Text, line: LogPattern) -> Any:
    words = text(
        "diagnosis.log",
        count=count(line.n),
        severity=text.said(line.severity),
        service=line.service,
        pattern=line.pattern,
    )
    if line.trace_id is None:
        return html.P(words, className="tt-muted")
    return html.P(link(words, href=f"/requests/{line.trace_id}"), className="tt-muted")


def _step(text: Text, rank: int, step: Step, lines: list[LogPattern]) -> Any:
    return html.Div(
        [
            html.Span(str(rank), className="tt-rank"),
            html.Div(
                [
                    html.Div(
                        [
                            html.Strong(text.step(step.step)),
                            tag(text(f"step.{step.state}"), _STATES[step.state]),
                            html.Span(
                                f"{duration(step.before_ns)} → {duration(step.during_ns)}", className="tt-caption"
                            )
                            if step.before_ns or step.during_ns
                            else None,
                            html.Span(text.said(step.note), className="tt-caption") if step.note else None,
                        ],
                        className="tt-card-head",
                    ),
                    *[_cause(text, one) for one in step.causes if abs(one.share) >= 0.01],
                    evidence_table(text, step.evidence) if step.evidence else None,
                    *[_log(text, line) for line in lines],
                ]
            ),
            html.Strong(share(step.share) if step.share > 0 else ""),
        ],
        className="tt-finding",
    )


def _cause(text: Text, one: CauseShare) -> Any:
    stages = text("list").join(text.stage(stage) for stage in one.stages[:4])
    return html.Div(
        [
            html.P([text.cause(one.cause), html.Span(f" · {stages} · {duration(one.ns)} · {share(one.share)}",
                    className="tt-muted"),
                    html.Span(f" · {text.said(one.reason)}", className="tt-muted") if one.reason else None]),
            evidence_table(text, one.evidence),
        ]
    )  # fmt: skip


def _sides(text: Text, found: Why) -> Any:
    sides = (found.before, found.during)
    shown: tuple[tuple[str, Callable[[Side], str]], ...] = (
        ("requests", lambda side: count(side.requests)),
        ("rate", lambda side: rate(side.per_second)),
        ("errors", lambda side: count(side.errors)),
        ("mean", lambda side: duration(side.mean_ns)),
        ("ttft", lambda side: duration(side.ttft_mean_ns)),
        ("input", lambda side: _tokens(side.input_tokens)),
        ("output", lambda side: _tokens(side.output_tokens)),
        ("throughput", lambda side: _tokens(side.output_tokens_per_second)),
        ("gpu", lambda side: DASH if side.gpu_seconds_per_token is None else f"{side.gpu_seconds_per_token:.3g} s"),
    )
    rows = [[text(f"side.{name}"), *(show(side) for side in sides)] for name, show in shown]
    heads = [("", ""), *((_span(text, side, key), "is-number") for side, key in zip(sides, ("before", "during")))]  # noqa: B905
    return panel(text("diagnosis.sides"), "", table(heads, rows))


def _span(text: Text, side: Side, key: str) -> str:
    since, until = moment(side.since_unix_ns)[5:16], moment(side.until_unix_ns)[11:16]
    return f"{text(f'side.{key}')} ({since} – {until})"


def _tokens(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
