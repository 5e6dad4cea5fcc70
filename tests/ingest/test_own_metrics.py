"""Prometheus can read what we say of ourselves."""

import re
from typing import Any

from tailtrace.errors import StoreError
from tailtrace.ingest.own_metrics import exposition
from tailtrace.ingest.receiver import Counters
from tailtrace.ingest.store import Store

LINE = re.compile(r'[a-z_]+(\{([a-z]+="(\\.|[^"\\])*",?)+\})? -?[0-9.e+]+\Z')


def health() -> dict[str, Any]:
    counters = Counters()
    counters.answered("traces", accepted=5, deferred=1, rejected={"bad_trace_id": 2})
    counters.refused("logs", '4"13')
    return {"uptime_s": 1.5, "receiver": counters.snapshot(), "pipeline": {"journal_bytes": 7, "stored_items": 5}}


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


def test_a_store_that_is_away_is_a_number_too() -> None:
    class Away:
        def query(self, *_: object, **__: object) -> None:
            raise StoreError("away")

    assert values(exposition(health(), Away()))["tailtrace_store_up"] == 0  # type: ignore[arg-type]
