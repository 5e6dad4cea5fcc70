"""All rules and channels: those of the file, which wins, and those made by the API."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import orjson
import pyarrow as pa

from tailtrace.analytics.alerting.rules import DEFAULT_RULE, Channel, load_file, parse_channel, parse_rule
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.store import Store

Kind = Literal["rule", "channel"]
_LOAD: Final = (
    "SELECT Kind AS kind, Name AS name, Body AS body FROM alert_objects FINAL WHERE NOT Deleted ORDER BY kind, name"
)


@dataclass(frozen=True, slots=True)
class Book:
    """Rules and channels by name. `fixed` are the names that the file holds: the API cannot change them."""

    rules: dict[str, Any]
    channels: dict[str, Channel]
    fixed: frozenset[tuple[str, str]]

    def channels_of(self, rule: Any) -> list[str]:
        """The rule's channels, all where it names none."""
        return [name for name in rule.channels if name in self.channels] if rule.channels else list(self.channels)


def load(store: Store, file: Path | None) -> Book:
    """The book. Without any regression rule there is one for everything."""
    rules: dict[str, Any] = {}
    channels: dict[str, Channel] = {}
    for row in store.query(_LOAD, role="jobs"):
        body = orjson.loads(row["body"])
        try:
            if row["kind"] == "rule":
                rules[row["name"]] = parse_rule(body)
            else:
                channels[row["name"]] = parse_channel(body)
        except Rejected:  # written by a release that knew more
            continue
    own_rules, own_channels = load_file(file) if file is not None else ([], [])
    rules |= {rule.name: rule for rule in own_rules}
    channels |= {channel.name: channel for channel in own_channels}
    if not any(rule.kind == "regression" for rule in rules.values()):
        rules.setdefault(DEFAULT_RULE.name, DEFAULT_RULE)
    fixed = {("rule", rule.name) for rule in own_rules} | {("channel", channel.name) for channel in own_channels}
    return Book(rules, channels, frozenset(fixed))


def put(store: Store, book: Book, kind: Kind, model: Any) -> None:
    """Store a rule or channel under its name. Raises Rejected for one that the file holds."""
    _writable(book, kind, model.name)
    _write(store, kind, model.name, model.model_dump_json(), deleted=False)


def delete(store: Store, book: Book, kind: Kind, name: str) -> None:
    """Remove a rule or channel. Raises NotFound, or Rejected for one that the file holds."""
    _writable(book, kind, name)
    if name not in (book.rules if kind == "rule" else book.channels):
        raise NotFound(f"there is no {kind} {name[:100]!r}")
    _write(store, kind, name, "{}", deleted=True)


def _writable(book: Book, kind: Kind, name: str) -> None:
    if (kind, name) in book.fixed:
        raise Rejected(f"{kind} {name!r} is in the rules file: change it there")


def _write(store: Store, kind: Kind, name: str, body: str, *, deleted: bool) -> None:
    stamp = pa.array([time.time_ns() // 1000], pa.timestamp("us", "UTC"))
    columns = {"Kind": [kind], "Name": [name], "Body": [body], "Deleted": [deleted], "UpdatedAt": stamp}
    store.insert_arrow("alert_objects", pa.table(columns), role="jobs")
