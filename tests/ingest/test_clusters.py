"""The schema for clusters: every statement is one that the engine parses, and none is forgotten."""

import re

import pytest

from tailtrace.errors import ConfigError
from tailtrace.ingest.store import Store
from tailtrace.ingest.store.clusters import rendered, statements
from tailtrace.ingest.store.migrations import migrations

STORED = {
    name
    for migration in migrations()
    for statement in migration.statements()
    if "MergeTree" in statement
    for name in re.findall(r"^CREATE TABLE IF NOT EXISTS (\w+)", statement)
}
LANDING = {"otlp_traces", "otlp_metrics", "otlp_logs"}
FORMS = [(True, ""), (False, "c1"), (True, "c1")]


@pytest.mark.parametrize(("replicated", "cluster"), FORMS)
def test_the_engine_parses_every_statement(store: Store, replicated: bool, cluster: str) -> None:
    for statement in statements(replicated=replicated, cluster=cluster):
        assert store.query("SELECT formatQuery({sql:String}) AS text", {"sql": statement})[0]["text"]


@pytest.mark.parametrize(("replicated", "cluster"), FORMS)
def test_all_tables_are_of_the_kind_that_was_asked_for(replicated: bool, cluster: str) -> None:
    text = rendered(replicated=replicated, cluster=cluster)
    made = re.findall(r"ENGINE = (\w*MergeTree)\b(.*)", text)
    assert len(made) == len(STORED) + 1  # and schema_version
    assert all(engine.startswith("Replicated") == replicated for engine, _ in made)
    if replicated:
        assert "non_replicated" not in text
        assert "ReplicatedVersionedCollapsingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', " \
            "Sign, Revision)" in text  # fmt: skip
        assert "toStartOfFiveMinutes(Received)" not in text
    heads = re.findall(r"^(?:CREATE|ALTER|DROP) .*", text, re.MULTILINE)
    assert all(("ON CLUSTER c1" in head) == bool(cluster) for head in heads)


def test_over_the_shards_lies_a_table_for_each_and_the_landing() -> None:
    text = rendered(replicated=True, cluster="c1").partition("USE tailtrace_all")[2]
    over = dict(re.findall(r"AS tailtrace\.(\w+)\nENGINE = Distributed\(c1, tailtrace, \1, (.*)\);", text))
    assert set(over) == {*STORED, "schema_version"}
    by_trace = {name for name, key in over.items() if key == "cityHash64(TraceId)"}
    assert {"otel_traces", "otel_traces_trace_id_ts", "otel_logs", "requests", "span_inbox"} <= by_trace
    assert over["otel_metrics_sum"] == "cityHash64(ServiceName, MetricName)"
    assert over["watermarks"] == "1"
    made = re.findall(r"^CREATE (?:TABLE|MATERIALIZED VIEW) IF NOT EXISTS (\w+)", text, re.MULTILINE)
    assert set(made) >= LANDING
    assert "otlp_traces_mv" in made
    # What fills the shard's own tables from its own spans is there alone.
    assert not {"span_inbox_mv", "otel_traces_trace_id_ts_mv", "judged_rows_mv"} & set(made)


def test_a_cluster_is_named_plainly() -> None:
    with pytest.raises(ConfigError, match="plain SQL name"):
        rendered(replicated=False, cluster="c; DROP TABLE x")
