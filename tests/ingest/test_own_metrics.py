"""Prometheus can read what we say of ourselves."""

import re
from typing import Any

from tailtrace.errors import StoreError
from tailtrace.ingest.own_metrics import exposition, job_lags
from tailtrace.ingest.rates import Rates
from tailtrace.ingest.receiver import Counters
from tailtrace.ingest.store import Store

LINE = re.compile(r'[a-z_]+(\{([a-z]+="(\\.|[^"\\])*",?)+\})? -?[0-9.e+]+\Z')


def health() -> dict[str, Any]:
    counters = Counters()
    counters.answered("traces", accepted=5, deferred=1, rejected={"bad_trace_id": 2})
    counters.refused("logs", '4"13')
    return {"uptime_s": 1.5, "receiver": counters.snapshot(), "pipeline": {"journal_bytes": 7, "stored_items": 5},
            "rates": {"stored_items": 2.5}, "disk_free_bytes": 9}  # fmt: skip


def values(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.match(line) for line in lines)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_everything_that_was_sent_is_in_one_of_the_numbers(store: Store) -> None:
    found = values(exposition(health(), store))
    sent = found['tailtrace_receiver_received_items_total{signal="traces"}']
    parts = ("accepted_items_total", "deferred_items_total")
    rejected = found['tailtrace_receiver_rejected_total{signal="traces",reason="bad_trace_id"}']
    assert sent == 8
    assert sent == rejected + sum(found[f'tailtrace_receiver_{part}{{signal="traces"}}'] for part in parts)
    assert found['tailtrace_receiver_refused_total{signal="logs",code="4\\"13"}'] == 1
    assert (found["tailtrace_pipeline_journal_bytes"], found["tailtrace_store_up"]) == (7, 1)
    assert found['tailtrace_table_parts{table="schema_version"}'] >= 1
    assert (found["tailtrace_pipeline_stored_items_per_second"], found["tailtrace_disk_free_bytes"]) == (2.5, 9)


def test_lags_and_what_clients_dropped(store: Store) -> None:
    store.command(
        "INSERT INTO watermarks (Job, Shard, ReceivedUpTo) SELECT 'requests', number, now64(3) - 60 - number "
        "FROM numbers(2)"
    )
    store.command(
        "INSERT INTO client_losses SELECT now(), 'gw', toString(number), 'traces', 'queue_full', 3 FROM numbers(2)"
    )
    assert 61 <= job_lags(store)["requests"] < 120
    assert values(exposition(health(), store))['tailtrace_client_dropped_items_total{reason="queue_full"}'] == 6


def test_rates_are_of_the_last_minute() -> None:
    rates = Rates(("n",))
    assert rates.per_second() == {}
    for second in range(0, 300, 2):
        rates.note(float(second), {"n": 10 * second if second < 200 else 2_000, "other": 1})
        if second == 100:
            assert rates.per_second() == {"n": 10.0}
    assert rates.per_second() == {"n": 0.0}


def test_a_store_that_is_away_is_a_number_too() -> None:
    class Away:
        def query(self, *_: object, **__: object) -> None:
            raise StoreError("away")

    assert values(exposition(health(), Away()))["tailtrace_store_up"] == 0  # type: ignore[arg-type]
