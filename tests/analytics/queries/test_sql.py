"""Ad hoc SQL: reads, limits, and what it refuses."""

from __future__ import annotations

import pytest
from seeding import insert_requests, request

from tailtrace.analytics.queries import run_sql
from tailtrace.analytics.queries.sql import checked
from tailtrace.errors import Rejected, StoreError
from tailtrace.ingest.store import Store


def test_a_read_with_parameters(store: Store) -> None:
    insert_requests(store, [request(n, duration_ns=n) for n in (1, 2, 3)])
    answer = run_sql(
        store, "SELECT DurationNs AS ns FROM requests WHERE DurationNs > {least:UInt64} ORDER BY ns;", {"least": 1}
    )
    assert (answer.columns, answer.rows, answer.truncated) == (["ns"], [[2], [3]], False)


def test_rows_are_limited_and_that_is_said(store: Store) -> None:
    answer = run_sql(store, "SELECT number FROM numbers(100000)", limit=3)
    assert (answer.rows, answer.truncated) == ([[0], [1], [2]], True)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE requests",
        "INSERT INTO losses (Count) VALUES (1)",
        "SELECT 1; DROP TABLE requests",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "SELECT file('/etc/passwd')",
        "SELECT `file`('/etc/passwd')",
        'SELECT "file" ("/etc/passwd")',
        "SELECT `\\x66ile`('/etc/passwd')",
        "SELECT file/**/('/etc/passwd')",
        "SELECT $$'$$, file('/etc/passwd'), $$'$$",
        "SELECT \u2018'\u2019, file('/etc/passwd'), \u2018'\u2019",
        "SELECT '\\'', file('/etc/passwd'), '\\''",
        "SELECT * FROM url('http://127.0.0.1/', 'LineAsString')",
        "SELECT 1 SETTINGS readonly = 0",
        "SELECT 1 INTO OUTFILE '/tmp/x'",
        "SELECT 1 FORMAT Null",
        "SELECT sleep(3)",
        "",
    ],
)
def test_everything_else_is_refused(statement: str) -> None:
    with pytest.raises(Rejected):
        checked(statement)


def test_the_engine_refuses_by_itself_too(store: Store) -> None:
    for statement in ("SELECT * FROM file('/etc/passwd', 'LineAsString')", "DROP TABLE losses"):
        with pytest.raises(StoreError, match="readonly"):
            store.query(statement, settings={"readonly": 1})


def test_text_that_only_looks_dangerous_is_fine(store: Store) -> None:
    answer = run_sql(store, "SELECT 'file(; settings' AS a -- file(")
    assert answer.rows == [["file(; settings"]]
