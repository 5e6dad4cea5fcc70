"""Searching spans by any attribute: `http.response.status_code>=500 gen_ai.system=vllm "user tier"~gold`.

Keys are literal, dots and all. Values compare as numbers where the operator is one of order, as text otherwise.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.errors import Rejected

MAX_TERMS: Final = 5
_TERM: Final = re.compile(r"^(?P<key>[^=<>!~]{1,200}?)(?P<op>!=|>=|<=|=|>|<|~)(?P<value>.{0,400})$", re.DOTALL)
_ORDERED: Final = frozenset({">=", "<=", ">", "<"})
_HOUR_NS: Final = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Term:
    """One condition on a span or its resource; `op` is empty where the key only has to be there."""

    key: str
    op: str
    value: str


def parse_terms(text: str) -> list[Term]:
    """The terms of a search. Raises Rejected for quotes that do not close, too many terms, or a number that is none."""
    try:
        words = shlex.split(text, posix=True)
    except ValueError as error:
        raise Rejected(f"a quote does not close in {text[:80]!r}") from error
    if len(words) > MAX_TERMS:
        raise Rejected(f"at most {MAX_TERMS} attributes can be searched at once; got {len(words)}")
    terms = []
    for word in words:
        match = _TERM.match(word)
        term = Term(match["key"].strip(), match["op"], match["value"].strip()) if match else Term(word[:200], "", "")
        if term.op in _ORDERED:
            try:
                float(term.value)
            except ValueError as error:
                raise Rejected(f"{term.key} {term.op} needs a number; got {term.value[:40]!r}") from error
        terms.append(term)
    return terms


def conditions(terms: Sequence[Term], since_ns: int | None, until_ns: int | None) -> tuple[list[str], dict[str, Any]]:
    """SQL conditions on `TraceId`, one a term, and their parameters: keys and values never become part of the SQL."""
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    bounds = ""
    if since_ns is not None:
        bounds += " AND Timestamp >= fromUnixTimestamp64Nano({spans_since:Int64}, 'UTC')"
        parameters["spans_since"] = max(0, since_ns - _HOUR_NS)
    if until_ns is not None:
        bounds += " AND Timestamp < fromUnixTimestamp64Nano({spans_until:Int64}, 'UTC')"
        parameters["spans_until"] = until_ns
    for at, term in enumerate(terms):
        either = " OR ".join(_holds(column, term, at) for column in ("SpanAttributes", "ResourceAttributes"))
        parts.append(f"TraceId IN (SELECT otel_traces.TraceId FROM otel_traces WHERE ({either}){bounds})")
        parameters[f"key_{at}"] = term.key
        if term.op:
            parameters[f"value_{at}"] = float(term.value) if term.op in _ORDERED else term.value
    return parts, parameters


def _holds(column: str, term: Term, at: int) -> str:
    there, value = f"mapContains({column}, {{key_{at}:String}})", f"{column}[{{key_{at}:String}}]"
    if not term.op:
        return there
    if term.op in _ORDERED:
        return f"({there} AND ifNull(toFloat64OrNull({value}) {term.op} {{value_{at}:Float64}}, false))"
    if term.op == "~":
        return f"({there} AND positionCaseInsensitiveUTF8({value}, {{value_{at}:String}}) > 0)"
    return f"({there} AND {value} {term.op} {{value_{at}:String}})"
