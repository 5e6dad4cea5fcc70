"""Routes of the statistical answers: attribution, compare, root-cause, slow, whatif, replicas, batch-curve, tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from tailtrace.analytics.queries import (
    Change,
    Selection,
    Window,
    attribution,
    batch_curve,
    compare,
    parse_filters,
    replicas,
    resolve_window,
    root_cause,
    select,
    slow_versus_rest,
    to_json,
    tokens,
    whatif,
)
from tailtrace.analytics.queries.selection import Metric
from tailtrace.analytics.queries.window import parse_span, parse_time
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.store import Store

Service = Annotated[str, Query(min_length=1, max_length=200)]
Text = Annotated[str | None, Query(max_length=200)]
Texts = Annotated[list[Annotated[str, Query(max_length=300)]], Query(max_length=20)]
Quantile = Annotated[float, Query(gt=0, lt=1)]


def add_answers(router: APIRouter, store: Store) -> None:
    """All take `service`, a range (`since` and `until`, or `range` back from the newest data), `filter=name=value`."""

    @router.get("/attribution")
    def which_stage(
        service: Service, metric: Metric = "duration", q: Quantile = 0.95, since: Text = None, until: Text = None,
        range: Text = None, filter: Texts = [],  # noqa: B006
    ) -> Response:  # fmt: skip
        window = _window(store, since, until, range)
        return _json(attribution(store, window, service, metric=metric, q=q, filters=parse_filters(filter)))

    @router.get("/compare")
    def from_a_to_b(
        service: Service, since: Text = None, until: Text = None, range: Text = None, at: Text = None,
        a_since: Text = None, a_until: Text = None, by: Text = None, a: Text = None, b: Text = None,
        filter: Texts = [],  # noqa: B006
    ) -> Response:  # fmt: skip
        filters = parse_filters(filter)
        if by:
            if a is None or b is None:
                raise Rejected("by=ATTRIBUTE needs a=VALUE and b=VALUE")
            chosen = select(_window(store, since, until, range, default="1d"), service, filters)
            return _json(compare(store, _with(chosen, by, a), _with(chosen, by, b)))
        one, other = _windows(store, since, until, range, at, a_since, a_until)
        return _json(compare(store, Selection(service, *one, filters), Selection(service, *other, filters)))

    @router.get("/root-cause")
    def at_fault(
        service: Service, since: Text = None, until: Text = None, range: Text = None, at: Text = None,
        a_since: Text = None, a_until: Text = None, filter: Texts = [],  # noqa: B006
    ) -> Response:  # fmt: skip
        filters = parse_filters(filter)
        before, now = _windows(store, since, until, range, at, a_since, a_until)
        return _json(root_cause(store, Selection(service, *now, filters), Selection(service, *before, filters)))

    @router.get("/slow")
    def slow_ones(
        service: Service, metric: Metric = "duration", q: Quantile = 0.95,
        threshold_ns: Annotated[int | None, Query(ge=0, lt=1 << 62)] = None, since: Text = None, until: Text = None,
        range: Text = None, filter: Texts = [],  # noqa: B006
    ) -> Response:  # fmt: skip
        chosen = select(_window(store, since, until, range), service, parse_filters(filter))
        return _json(slow_versus_rest(store, chosen, metric=metric, q=q, threshold_ns=threshold_ns))

    @router.get("/whatif")
    def supposed(
        service: Service, stage: Texts = [], replicas: int = 0, startup: Text = None, rate: float = 1.0,  # noqa: B006
        since: Text = None, until: Text = None, range: Text = None, filter: Texts = [],  # noqa: B006
    ) -> Response:  # fmt: skip
        chosen = select(_window(store, since, until, range), service, parse_filters(filter))
        seconds = parse_span(startup) / 1e9 if startup else 0.0
        return _json(whatif(store, chosen, Change(_factors(stage), replicas, seconds, rate)))

    @router.get("/replicas")
    def load(
        service: Service, since: Text = None, until: Text = None, range: Text = None,
        filter: Texts = [],  # noqa: B006
    ) -> Response:  # fmt: skip
        return _json(replicas(store, select(_window(store, since, until, range), service, parse_filters(filter))))

    @router.get("/batch-curve")
    def batches(
        service: Service, replica: Annotated[str, Query(max_length=200)] = "", since: Text = None, until: Text = None,
        range: Text = None,
    ) -> Response:  # fmt: skip
        return _json(batch_curve(store, _window(store, since, until, range), service, replica=replica))

    @router.get("/tokens")
    def first_or_later(
        service: Service, since: Text = None, until: Text = None, range: Text = None,
        filter: Texts = [],  # noqa: B006
    ) -> Response:  # fmt: skip
        return _json(tokens(store, _window(store, since, until, range), service, filters=parse_filters(filter)))


def _window(store: Store, since: str | None, until: str | None, span: str | None, default: str = "1h") -> Window:
    window = resolve_window(store, since=since, until=until, span=span, default_span=default)
    if window is None:
        raise NotFound("nothing is stored yet")
    return window


def _windows(
    store: Store, since: str | None, until: str | None, span: str | None, at: str | None, a_since: str | None,
    a_until: str | None,
) -> tuple[tuple[int, int], tuple[int, int]]:  # fmt: skip
    """A and B: around `at`; else B as given, and A as given or the same length just before it."""
    if at is not None:
        middle, length = parse_time(at), parse_span(span or "1h")
        return (max(0, middle - length), middle), (middle, middle + length)
    window = _window(store, since, until, span)
    begin, end = (parse_time(since) if since else window.since_ns), (parse_time(until) if until else window.until_ns)
    last = parse_time(a_until) if a_until else begin
    return (parse_time(a_since) if a_since else max(0, last - (end - begin)), last), (begin, end)


def _with(chosen: Selection, name: str, value: str) -> Selection:
    filters = {**chosen.filters, **parse_filters([f"{name}={value}"])}
    return Selection(chosen.service, chosen.since_ns, chosen.until_ns, filters, chosen.outcomes, chosen.is_root)


def _factors(stages: list[str]) -> dict[str, float]:
    """`prefill=0.5` and the like. Raises Rejected for anything else."""
    found = {}
    for text in stages:
        name, equals, factor = text.partition("=")
        try:
            found[name.strip()] = float(factor)
        except ValueError:
            equals = ""
        if not equals:
            raise Rejected(f"a stage is STAGE=FACTOR, like prefill=0.5; got {text[:60]!r}")
    return found


def _json(answer: object) -> Response:
    return Response(to_json(answer), media_type="application/json")
