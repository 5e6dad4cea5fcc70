"""The list of requests as a table with the columns the reader chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries import RequestList
from tailtrace.analytics.queries.request_row import RequestRow
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.marks import outcome_mark, simulated_mark
from tailtrace.dashboard.components.stage_bar import legend, mini_bar
from tailtrace.dashboard.format import DASH, clock, count, duration, moment
from tailtrace.dashboard.text import Text
from tailtrace.stages import NAMES, UNEXPLAINED

COLUMNS: Final = (
    "outcome", "service", "request", "model", "duration", "ttft", "tpot", "tokens", "version", "replica", "tenant",
    "stages",
)  # fmt: skip
DEFAULT: Final = ("outcome", "service", "request", "duration", "ttft", "tokens", "stages")
_NUMBERS: Final = frozenset({"duration", "ttft", "tpot", "tokens", "sorted"})


@dataclass(frozen=True, slots=True)
class _Frame:
    """What rows share: the longest duration, whether simulated rows are marked one by one, the stage sorted by."""

    longest_ns: int
    marked: bool
    stage: str


def chosen_columns(address: Address) -> tuple[str, ...]:
    """Columns of the address in the table's order; the default ones where it names none."""
    named = set(address.columns.split(",")) & set(COLUMNS)
    return tuple(name for name in COLUMNS if name in named) or DEFAULT


def request_table(text: Text, found: RequestList, columns: Sequence[str]) -> Any:
    """At least one request."""
    # The head says it when all rows are simulated; each row says it when only some are.
    frame = _Frame(
        max(row.duration_ns for row in found.requests),
        len({row.simulated for row in found.requests}) > 1,
        found.order if found.order in (*NAMES, UNEXPLAINED) else "",
    )
    shown = {part.stage for row in found.requests for part in row.stages if part.share >= 0.01}
    heads = [html.Th(text("column.start"))]
    if frame.stage:
        heads.append(html.Th(text.stage(frame.stage), className="is-number"))
    heads += [html.Th(text(f"column.{name}"), className=_kind(name)) for name in columns]
    return html.Section(
        [
            html.Div(
                html.Table(
                    [
                        html.Thead(html.Tr(heads)),
                        html.Tbody([_row(text, row, frame, columns) for row in found.requests]),
                    ],
                    className="tt-table is-list",
                ),
                className="tt-scroll",
            ),
            html.Div(
                legend(text, [stage for stage in NAMES if stage in shown] + [UNEXPLAINED]), className="tt-table-foot"
            ),
        ],
        className="tt-panel",
        **aria(label=text("nav.requests")),
    )


def _kind(name: str) -> str:
    return "is-stages" if name == "stages" else "is-number" if name in _NUMBERS else ""


def _row(text: Text, row: RequestRow, frame: _Frame, columns: Sequence[str]) -> Any:
    href = f"/requests/{row.trace_id}" + ("" if row.is_root else f"?entry={row.span_id}")
    cells = [
        html.Td(
            link(clock(row.start_unix_ns), href=href, className="tt-strong"),
            title=moment(row.start_unix_ns),
            className="is-time",
        )
    ]
    if frame.stage:
        spent = {part.stage: part.duration_ns for part in row.stages} | {UNEXPLAINED: row.unexplained_ns}
        cells.append(html.Td(duration(spent.get(frame.stage, 0)), className="is-number"))
    return html.Tr([*cells, *(_cell(text, row, frame, name) for name in columns)], **data(href=href))


def _cell(text: Text, row: RequestRow, frame: _Frame, name: str) -> Any:
    if name == "outcome":
        return html.Td(outcome_mark(text, row.outcome))
    if name == "service":
        return html.Td([row.service, simulated_mark(text) if frame.marked and row.simulated else None])
    if name == "request":
        return html.Td(row.route or row.name, className="is-clipped", title=f"{row.name} {row.route}")
    if name in ("model", "version", "replica", "tenant"):
        value = getattr(row, name)
        return html.Td(value, className="is-clipped", title=value)
    if name in ("duration", "ttft", "tpot"):
        return html.Td(duration(getattr(row, f"{name}_ns")), className="is-number")
    if name == "tokens":
        unknown = row.input_tokens is None and row.output_tokens is None
        words = DASH if unknown else f"{count(row.input_tokens)} → {count(row.output_tokens)}"
        return html.Td(words, className="is-number")
    width = row.duration_ns / frame.longest_ns if frame.longest_ns else 0
    return html.Td(mini_bar(text, row.stages, row.unexplained_ns, row.duration_ns, width=width), className="is-stages")
