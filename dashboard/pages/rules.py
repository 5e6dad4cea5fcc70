"""Rules: what is watched and how each rule stands; one of them, or a new one, in a form."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from dash import html

from tailtrace.analytics.alerting import book
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.action import action
from tailtrace.dashboard.components.form import Field, form
from tailtrace.dashboard.components.later import later
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import notice, panel, table, tag
from tailtrace.dashboard.format import count
from tailtrace.dashboard.permission import may_write, read_only_note
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/rules"
_METRICS: Final = ("duration", "ttft", "tpot")
_INDICATORS: Final = (*_METRICS, "availability", "goodput", "per_token", "tokens_per_s")
_COMMON: Final = (Field("name", required=True), Field("service"), Field("model"))
_LAST: Final = (Field("channels", "list"), Field("enabled", "bool"))
FIELDS: Final = {
    "regression": (*_COMMON, Field("metrics", "list"), Field("at_least", "number"), *_LAST),
    "threshold": (
        *_COMMON, Field("metric", "choice", _METRICS, required=True), Field("q", "number"),
        Field("above", required=True), Field("clear"), Field("window"), Field("hold"), Field("min_n", "number"), *_LAST,
    ),
    "slo": (
        *_COMMON, Field("sli", "choice", _INDICATORS, required=True),
        Field("objective", "number", required=True), Field("within"), Field("ttft_within"), Field("tpot_within"),
        Field("tokens_per_s", "number"), Field("min_n", "number"), *_LAST,
    ),
    "silence": (*_COMMON, Field("after"), Field("lost", "number"), *_LAST),
}  # fmt: skip


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    kept = book.load(store, settings.alerts_file)
    head = html.Div([html.H1(text("nav.rules")), *_kinds(text)], className="tt-page-head")
    if address.id in kept.rules:
        body = _one(text, kept, kept.rules[address.id])
    elif address.kind in FIELDS and may_write():
        body = _form(text, address.kind, {"enabled": True}, fresh=True)
    else:
        body = _list(text, kept, missing=address.id)
    return html.Div([head, read_only_note(text), body], className="tt-page")


def _kinds(text: Text) -> list[Any]:
    if not may_write():
        return []
    return [
        link(text("rules.new", kind=text(f"rules.{kind}")), href=Address(kind=kind).href(_PATH),
             className="tt-button is-small")
        for kind in FIELDS
    ]  # fmt: skip


def _list(text: Text, kept: book.Book, *, missing: str) -> Any:
    heads = [(text("form.name"), ""), (text("rules.watches"), ""), (text("nav.channels"), ""),
             (text("regressions.state"), ""), ("", "")]  # fmt: skip
    rows = [
        [
            link(name, href=Address(id=name).href(_PATH)), sentence(text, rule),
            ", ".join(rule.channels) or text("rules.all_channels"),
            tag(text("rules.on" if rule.enabled else "rules.off"), "good" if rule.enabled else ""),
            _actions(text, kept, rule),
        ]
        for name, rule in sorted(kept.rules.items())
    ]  # fmt: skip
    gone = html.P(text("rules.gone", name=missing[:100]), className="tt-muted") if missing else None
    return panel(text("rules.all"), count(len(rows)), gone, table(heads, rows))


def _actions(text: Text, kept: book.Book, rule: Any) -> Any:
    if ("rule", rule.name) in kept.fixed:
        return html.Span(text("rules.fixed"), className="tt-muted")
    return action(text("form.delete"), f"/api/v1/rules/{quote(rule.name, safe='')}", method="DELETE", body="",
                  confirm=text("form.sure", name=rule.name), then=_PATH)  # fmt: skip


def sentence(text: Text, rule: Any) -> str:
    """What a rule says, in one line."""
    where = " · ".join(part for part in (rule.service or text("rules.every"), rule.model) if part)
    values = {name: value for name, value in rule.model_dump().items() if isinstance(value, str | int | float)}
    metrics = ", ".join(text(f"choice.{one}") for one in getattr(rule, "metrics", ()))
    values["metrics"] = metrics or text("rules.by_goal")
    values["metric"] = text.or_else(f"choice.{values.get('metric', '')}", "")
    values["sli"] = text.or_else(f"choice.{values.get('sli', '')}", "")
    if getattr(rule, "sli", "") == "tokens_per_s":
        values["within"] = text("slos.tokens_per_s", least=f"{rule.tokens_per_s:g}")
    values["percent"] = f"{100 * values.get('objective', 0):g}"
    values["quantile"] = f"P{100 * values.get('q', 0):g}"
    values["least"] = f"{100 * values.get('at_least', 0):g}"
    key = "rules.regression.says_any" if rule.kind == "regression" and not rule.at_least else f"rules.{rule.kind}.says"
    return f"{where}: {text(key, **values)}"


def _one(text: Text, kept: book.Book, rule: Any) -> Any:
    """One rule: how it stands on each service, when it would have told, its form."""
    fixed = ("rule", rule.name) in kept.fixed
    editor = (
        notice(text("rules.fixed"), text("rules.fixed.hint")) if fixed
        else _form(text, rule.kind, rule.model_dump(), fresh=False) if may_write() else None
    )  # fmt: skip
    return html.Div(
        [
            panel(rule.name, sentence(text, rule), later(text, "rule_states", rule=rule.name)),
            panel(text("rules.replay"), text("rules.replay.hint"), later(text, "rule_replay", rule=rule.name)),
            editor,
        ],
        className="tt-page",
    )


def _form(text: Text, kind: str, values: dict[str, Any], *, fresh: bool) -> Any:
    fields = FIELDS[kind] if fresh else tuple(one for one in FIELDS[kind] if one.name != "name")
    fixed = {"kind": kind} if fresh else {"kind": kind, "name": values["name"]}
    method, path = ("POST", "/api/v1/rules") if fresh else ("PUT", "/api/v1/rules/{name}")
    title = text("rules.new", kind=text(f"rules.{kind}")) if fresh else text("form.edit", name=values["name"])
    return panel(title, text(f"rules.{kind}.hint"),
                 form(text, "rule", fields, values, method=method, path=path, then=_PATH, fixed=fixed))  # fmt: skip
