"""After RESTORE DATABASE the engine counts blocks anew: what docs/clickhouse.md says to run lets the jobs go on."""

from __future__ import annotations

import re
from pathlib import Path

from tailtrace.ingest.store import Store
from tests.analytics.feed import feed
from tests.analytics.test_requests_job import assert_rollups_agree, request, rows, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clickhouse.md"
HIGHER_COUNT = """
ALTER TABLE watermarks UPDATE Note = replaceRegexpAll(Note, '"(cursor|low)": [0-9]+', '"\\\\1": 9000000000')
WHERE Job = 'requests' SETTINGS mutations_sync = 2
"""


def test_the_statements_of_the_page_let_the_jobs_go_on(store: Store, tmp_path: Path) -> None:
    feed(store, tmp_path, request(1))
    assert run(store, 3_000).rows == 1
    run(store, 6_000)
    store.command(HIGHER_COUNT)  # as if the blocks counted so far had been of another table
    feed(store, tmp_path, request(2))
    assert run(store, 9_000).rows == 0
    truncate, update = re.findall(r"`((?:TRUNCATE|ALTER) TABLE tailtrace[^`]*)`", PAGE.read_text())
    store.command(truncate)
    store.command(f"{update} SETTINGS mutations_sync = 2")
    feed(store, tmp_path, request(3))
    assert run(store, 30_000).rows == 1
    assert len(rows(store)) == 2
    assert_rollups_agree(store)
