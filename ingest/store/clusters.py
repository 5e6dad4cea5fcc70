"""The schema for ClickHouse clusters: tables that copy themselves to a second server, and shards.

It is text for an operator to read and run; nothing of it has been run by this project, only parsed.

One shard: every table is replicated, under the macros {shard} and {replica} of the servers. Several: each shard holds
the database `tailtrace`, in which a worker of its own judges what lies there, and `tailtrace_all` with a distributed
table over each of its tables. Receivers and dashboards use `tailtrace_all`: telemetry lands there and is spread by the
hash of its trace id, so that a trace is whole on one shard.
"""

import re
from collections.abc import Iterator
from typing import Final

from tailtrace.ingest.store.migrations import VERSION_TABLE, migrations
from tailtrace.ingest.store.statements import identifier, literal

WHOLE: Final = "tailtrace_all"
_SHARD: Final = "tailtrace"
_COMMENT = re.compile(r"^--.*$\n?", re.MULTILINE)
_HEAD = re.compile(
    r"\A((?:CREATE (?:TABLE|MATERIALIZED VIEW|VIEW) IF NOT EXISTS|DROP VIEW IF EXISTS|ALTER TABLE) )(\w+)"
)
_ENGINE = re.compile(r"\bENGINE = (\w*)MergeTree(?:\(([^)]*)\))?")
_WINDOW = re.compile(r"\bnon_replicated_deduplication_window = (\d+)")
_LANDING = re.compile(r"\bFROM (otlp_\w+)")
# By the first of these columns that a table has. What has none is the product's own state and lives on one shard.
_KEYS: Final = (
    ("TraceId", "cityHash64(TraceId)"),
    ("MetricName", "cityHash64(ServiceName, MetricName)"),
    ("EngineId", "cityHash64(EngineId)"),
    ("Instance", "cityHash64(Service, Instance)"),
    ("", "1"),
)
_WEEK_S: Final = 604_800
# In a replicated table each partition counts its blocks anew, and the jobs go by one count: the inbox has one
# partition then, and forgets by age what it otherwise drops behind the watermark.
_INBOX_PARTITION: Final = "PARTITION BY toStartOfFiveMinutes(Received)\nORDER BY Received\n"
_INBOX_AGE: Final = "ORDER BY Received\nTTL toDateTime(Received) + INTERVAL 1 DAY\n"


def statements(*, replicated: bool, cluster: str = "") -> Iterator[str]:
    """Every statement, in order, without its semicolon. ConfigError for a cluster whose name is no plain one."""
    on = f" ON CLUSTER {identifier(cluster)}" if cluster else ""
    yield f"CREATE DATABASE IF NOT EXISTS {_SHARD}{on}"
    yield f"USE {_SHARD}"
    plain = list(_plain())
    for statement in plain:
        yield _on_cluster(_replicated(statement) if replicated else statement, on)
    if cluster:
        yield f"CREATE DATABASE IF NOT EXISTS {WHOLE}{on}"
        yield f"USE {WHOLE}"
        for statement in plain:
            yield from _over_shards(statement, cluster, on)
    versions = ", ".join(f"({m.version}, {literal(m.name)})" for m in migrations())
    where = "-- On one server of every shard: so no program of this release migrates anything.\n"
    yield f"{where}INSERT INTO {_SHARD}.schema_version (Version, Name) VALUES {versions}"


def rendered(*, replicated: bool, cluster: str = "") -> str:
    """The statements as a script."""
    return "".join(f"{statement};\n\n" for statement in statements(replicated=replicated, cluster=cluster))


def _plain() -> Iterator[str]:
    yield VERSION_TABLE
    for migration in migrations():
        for statement in migration.statements():
            if text := _COMMENT.sub("", statement).strip():
                yield text


def _on_cluster(statement: str, on: str) -> str:
    return _HEAD.sub(rf"\1\2{on}", statement)


def _replicated(statement: str) -> str:
    def engine(match: re.Match[str]) -> str:
        arguments = ", ".join(
            part for part in ("'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'", match[2]) if part
        )
        return f"ENGINE = Replicated{match[1]}MergeTree({arguments})"

    window = rf"replicated_deduplication_window = \1, replicated_deduplication_window_seconds = {_WEEK_S}"
    statement = _WINDOW.sub(window, _ENGINE.sub(engine, statement))
    return statement.replace(_INBOX_PARTITION, _INBOX_AGE) if " span_inbox (" in statement else statement


def _over_shards(statement: str, cluster: str, on: str) -> Iterator[str]:
    """What the database over all shards needs of a statement: a distributed table, the landing, a plain view."""
    head = _HEAD.match(statement)
    if head is None:
        return
    made, name = head[1].split(" IF ")[0].strip(), head[2]
    if made == "CREATE TABLE" and _ENGINE.search(statement):
        key = next(key for column, key in _KEYS if re.search(rf"^\s+{column}", statement, re.MULTILINE))
        yield (
            f"CREATE TABLE IF NOT EXISTS {name}{on} AS {_SHARD}.{name}\n"
            f"ENGINE = Distributed({cluster}, {_SHARD}, {name}, {key})"
        )
    elif made == "CREATE VIEW" or name.startswith("otlp_") or _LANDING.search(statement):
        yield _on_cluster(statement, on)
