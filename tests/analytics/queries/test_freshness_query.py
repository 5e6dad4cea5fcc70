"""How complete the picture is said to be."""

from __future__ import annotations

from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries import freshness
from tailtrace.ingest.store import Store


def test_an_empty_store_claims_nothing(store: Store) -> None:
    state = freshness(store)
    assert (state.judged_up_to_unix_ns, state.newest_unix_ns, state.complete_until_unix_ns) == (None, None, None)
    assert (state.services, state.losses, state.rejected, state.dropped, state.orphaned) == ([], [], 0, 0, 0)


def test_newest_is_known_before_completeness_is(store: Store) -> None:
    insert_requests(store, [request(n, duration_ns=SECOND) for n in range(10)])
    state = freshness(store)
    assert state.newest_unix_ns == str(T0 + 9 * SECOND)
    assert state.complete_until_unix_ns is None
    assert [(one.service, one.lag_p99_ns) for one in state.services] == [("api", SECOND)]


def test_rates_are_of_the_last_five_minutes(store: Store) -> None:
    rows = [request(n, duration_ns=SECOND, SpanCount=4, end_ns=T0 - n * SECOND) for n in range(600)]
    insert_requests(store, rows)
    (found,) = freshness(store).services
    assert (found.requests_per_second, found.spans_per_second) == (301 / 300, 4 * 301 / 300)


def test_requests_without_a_parent_are_counted_once_though_opened_again(store: Store) -> None:
    rows = [request(n, duration_ns=SECOND, Flags=["parent_missing"] if n < 3 else []) for n in range(10)]
    again = [{**row, "Sign": sign, "Revision": revision} for row in rows[:1] for sign, revision in ((-1, 1), (1, 2))]
    insert_requests(store, [*rows, *again])
    state = freshness(store)
    assert state.orphaned == 3
    assert [(one.service, one.kind, one.reason) for one in state.losses] == [("api", "orphaned", "parent_missing")]


def test_losses_are_added_up_by_kind(store: Store) -> None:
    store.command(
        "INSERT INTO losses (Time, Service, Signal, Kind, Reason, Count) VALUES "
        "('2026-09-21 14:13:00', 'api', 'traces', 'rejected', 'bad_id', 3), "
        "('2026-09-21 14:14:00', 'api', 'traces', 'rejected', 'bad_time', 4), "
        "('2026-09-21 14:14:00', 'api', 'traces', 'orphaned', '', 2)"
    )
    state = freshness(store)
    assert (state.rejected, state.dropped, state.orphaned) == (7, 0, 2)


def test_declared_backfill_is_not_late(store: Store) -> None:
    hour = 3600 * SECOND
    old = [request(n, duration_ns=SECOND, ReceivedAt=T0 + hour, Flags=["backfill"]) for n in range(30)]
    insert_requests(store, [*old, *(request(100 + n, duration_ns=SECOND) for n in range(10))])
    assert [one.lag_p99_ns for one in freshness(store).services] == [SECOND]


def test_a_service_of_backfill_alone_is_behind_by_the_floor(store: Store) -> None:
    insert_requests(store, [request(1, duration_ns=SECOND, ReceivedAt=T0 + 9999 * SECOND, Flags=["backfill"])])
    assert [one.lag_p99_ns for one in freshness(store).services] == [0]
