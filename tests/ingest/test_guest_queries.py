"""What a stranger may ask."""

import pytest

from tailtrace.errors import Rejected
from tailtrace.ingest.guest_queries import check_guest_query


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count() FROM otel_traces",
        "  /* id:x */ select 1 FORMAT JSON;",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "WITH 1 AS x SELECT x",
        "SELECT 'INTO; file(' AS text",
        "SELECT domain(SpanAttributes['url.full']) FROM otel_traces",
        "SHOW TABLES",
        "DESCRIBE otel_traces",
        "SELECT numbers.number FROM numbers(3)",
    ],
)
def test_reading_is_allowed(sql: str) -> None:
    check_guest_query(sql)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DROP TABLE otel_traces", "reading statements"),
        ("INSERT INTO otel_traces VALUES (1)", "reading statements"),
        ("SET readonly = 0", "reading statements"),
        ("KILL QUERY WHERE 1", "reading statements"),
        ("USE system", "reading statements"),
        ("\\! ls", "reading statements"),
        ("", "reading statements"),
        ("SELECT 1; DROP TABLE x", "one statement"),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", "not written"),
        ("SELECT 1 INTO/**/OUTFILE '/tmp/x'", "not written"),
        ("SELECT file('/etc/passwd')", "outside"),
        ("SELECT `file` ('/etc/passwd')", "outside"),
        ("SELECT fIlE/* */('/etc/passwd')", "outside"),
        ("SELECT * FROM url('http://127.0.0.1/')", "outside"),
        ("SELECT * FROM s3Cluster('x', 'y')", "outside"),
        ("SELECT * FROM Python(x)", "outside"),
        ("SELECT '\\'' , file('/etc/passwd') -- '", "outside"),
    ],
)
def test_everything_else_is_refused_with_a_reason(sql: str, why: str) -> None:
    with pytest.raises(Rejected, match=why):
        check_guest_query(sql)
