"""The plain sentence about a service: what trouble it is in, since when, which stage; then what its tail is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries.movers import Mover, Movers
from tailtrace.analytics.queries.overview import Overview, ServiceOverview, StageSplit
from tailtrace.analytics.queries.recorded import RecordedChange
from tailtrace.analytics.queries.stage_shares import StageShare, largest
from tailtrace.dashboard.components.movers import stage_change
from tailtrace.dashboard.format import count, duration, moment, share
from tailtrace.dashboard.text import Text

_FAILING: Final = 0.01
_SLOWER: Final = ("suspected", "confirmed", "resolved")  # and not what was dismissed, or has become usual
_MARKS: Final = {"fine": ("●", "tt-good"), "over": ("◐", "tt-warn"), "trouble": ("▲", "tt-bad")}
_FEW: Final = 20  # failures of fewer requests are told by the table alone


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a service is in trouble: a recorded change, slower than yesterday, failing. `over`: all of it has passed."""

    change: RecordedChange | None
    mover: Mover | None
    failing: float
    over: bool


def troubles(figures: Overview, moved: Movers, changes: Sequence[RecordedChange]) -> dict[str, Trouble]:
    """The services that are in any, by name."""
    found = {}
    for one in figures.services:
        own = [each for each in changes if each.service == one.service and each.state in _SLOWER]
        # What goes on comes first, then what is sure, then what departs most from the usual.
        own.sort(key=lambda each: (each.until_unix_ns is not None, each.state != "confirmed", -abs(each.departure)))
        change = own[0] if own else None
        slower = [each for each in moved.movers if each.service == one.service and each.change_ns > 0]
        failing = one.error_share or 0.0
        if one.requests < _FEW or failing <= _FAILING:
            failing = 0.0
        if change or slower or failing:
            over = not slower and not failing and change is not None and change.until_unix_ns is not None
            found[one.service] = Trouble(change, slower[0] if slower else None, failing, over)
    return found


def sentence(text: Text, one: ServiceOverview, trouble: Trouble | None) -> Any:
    """What is slow, since when and which stage; with too few requests for a P99, that is said instead of a number."""
    state = "fine" if not trouble else "over" if trouble.over else "trouble"
    sign, kind = _MARKS[state]
    mark = html.Span(sign, className=kind, title=text(f"sentence.{state}"))
    told = [html.Span(_trouble(text, trouble)), html.Br()] if trouble else []
    rest = html.Span(_words(text, one), className="tt-sentence-rest" if trouble else None)
    return html.P(
        [mark, " ", html.Strong(one.service or text("service.unnamed")), html.Span(text("colon")), *told, rest],
        className="tt-sentence" + (" is-trouble" if trouble else ""),
    )


def _trouble(text: Text, trouble: Trouble) -> list[Any]:
    words: list[Any] = []
    if trouble.change:
        change = trouble.change
        key = "sentence.since" if change.departure >= 0 else "sentence.since_lower"
        since, until = moment(change.onset_unix_ns)[:16], moment(change.until_unix_ns)[11:16]
        key += "_until" if change.until_unix_ns else ""
        metric = text.or_else(f"chart.{change.metric}", change.metric)
        words.append(html.B(text(key, metric=metric, time=since, until=until)))
        if trouble.change.stage:
            part = share(trouble.change.stage_share)
            words += [" ", text("sentence.since_stage", stage=text.stage(trouble.change.stage), share=part)]
    if trouble.mover:
        was, now = duration(trouble.mover.before_ns), duration(trouble.mover.value_ns)
        words += [" ", text("sentence.mover", was=was, now=now)]
        words += [" ", stage_change(text, trouble.mover)] if trouble.mover.stage else []
        words.append(text("stop"))
    if trouble.failing:
        words += [" ", html.B(text("sentence.failing", share=share(trouble.failing)))]
    return words


def _words(text: Text, one: ServiceOverview) -> list[Any]:
    tail = one.duration[-1] if one.duration else None
    split = one.duration_split[-1] if one.duration_split else None
    if tail is None or split is None:
        return [text("sentence.none", n=count(one.requests))]
    if tail.hollow:
        low = "" if tail.low_ns is None else text("sentence.few_above", low=duration(tail.low_ns))
        words = [text("sentence.few", n=count(tail.n), needed="1,000", low=low)]
    else:
        words = [text("sentence.tail", p99=duration(tail.value_ns))]
    top = largest(split.stages)
    if top is None or split.unexplained_ns > top.duration_ns:
        return [*words, " ", text("sentence.unexplained", share=share(split.unexplained_ns / split.value_ns))]
    if not one.staged:
        return [*words, " ", text("sentence.unstaged", ns=duration(top.duration_ns), stage=text.stage(top.stage))]
    return [*words, " ", *_blame(text, one, split, top)]


def _blame(text: Text, one: ServiceOverview, split: StageSplit, top: StageShare) -> list[Any]:
    """The stage that takes most of the tail, and its share of the median for comparison."""
    middle = one.duration_split[0]
    usual = next((part.share for part in middle.stages if part.stage == top.stage), 0.0)
    mark = html.Span(
        [html.I(className="tt-dot", style={"background": f"var(--stage-{top.stage})"}), text.stage(top.stage)],
        className="tt-chip",
        title=text.meaning(top.stage),
    )
    return [
        text("sentence.share", share=share(top.share)), " ", mark, " ",
        text("sentence.compare", ns=duration(top.duration_ns), usual=share(usual), p50=duration(middle.value_ns)),
    ]  # fmt: skip
