"""A million requests: lists, heatmap and overview answer, within their caps, and agree on how many there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from seeding import SECOND, T0
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

MANY = 1_000_000
# An hour of requests, made by the engine itself.
FILL = """
INSERT INTO judged (Start, End, TraceId, SpanId, Service, Name, Route, Kind, IsRoot, DurationNs, QueueNs, DecodeNs,
  UnexplainedNs, Outcome, Streaming, Model, Version, Tenant, N, Attempts, SampleWeight, SpanCount, ReceivedAt, Sign,
  Revision)
SETTINGS min_insert_block_size_rows = 65536, max_block_size = 65536, max_threads = 1
SELECT end - INTERVAL ns NANOSECOND, end, lower(hex(MD5(toString(number)))), hex(number), 'api', 'POST', '/v1',
  'request', true, ns, intDiv(ns, 4), intDiv(ns, 2), ns - intDiv(ns, 4) - intDiv(ns, 2),
  if(number % 100 = 0, 'error', 'ok'),
  'true', ['m', 'n'][1 + number % 2], '1', concat('t', toString(number % 50)), 1, 1, 1, 3, end, 1, 1
FROM (
  SELECT number, toUInt64(10000000 + cityHash64(number) % 2000000000) AS ns,
    fromUnixTimestamp64Nano({t0:Int64} - intDiv(number * 3600000000000, {many:Int64}), 'UTC') AS end
  FROM numbers({many:UInt64}))
"""


@pytest.fixture
def client(store: Store, settings: ServerSettings) -> Iterator[TestClient]:
    store.command(FILL, {"t0": T0, "many": MANY})
    with TestClient(create_app(store, settings), base_url="http://127.0.0.1") as client:
        yield client


def test_a_million_requests(client: TestClient) -> None:
    everything = {"range": "2h"}
    listed = client.get("/api/v1/requests", params={**everything, "order": "queue"})
    assert (listed.json()["total"], len(listed.json()["requests"])) == (MANY, 50)
    assert len(listed.content) < 200_000
    second = client.get(
        "/api/v1/requests", params={**everything, "order": "queue", "cursor": listed.json()["next"]}
    ).json()
    assert second["requests"][0]["duration_ns"] <= listed.json()["requests"][-1]["duration_ns"]
    heat = client.get("/api/v1/heatmap", params=everything)
    assert heat.json()["total"] == sum(map(sum, heat.json()["counts"])) == MANY
    assert len(heat.content) < 2_000_000
    (service,) = client.get("/api/v1/overview", params=everything).json()["services"]
    assert service["requests"] == MANY
    assert service["error_share"] == 0.01
    assert client.get("/api/v1/facets", params=everything).json()["total"] == MANY
    narrow = {**everything, "model": "m", "outcome": "error", "since": str(T0 - 60 * SECOND)}
    assert 0 < client.get("/api/v1/requests", params=narrow).json()["total"] < MANY // 100
