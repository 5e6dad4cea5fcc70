"""Does a running server do its work?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final

from tailtrace.cli.checks.finding import Finding
from tailtrace.cli.client import ApiClient
from tailtrace.errors import NotFound, TailtraceError
from tailtrace.version import VERSION

_SKEW_S: Final = 5.0
"""Less is not told: the header has whole seconds."""
_FIND_S: Final = 30.0
_LAG_S: Final = 120.0
_PARTS: Final = 2_000
"""Active parts of one table; the engine slows inserts down at some thousand in one partition."""
_SERVICE: Final = "tailtrace-doctor"


def checks(url: str, endpoint: str, token: str) -> Iterator[Callable[[], Finding]]:
    """The checks in order; the rest is left out when no server answers."""
    api = ApiClient(url, token, timeout_s=10)
    health: dict[str, Any] = {}

    def answers() -> Finding:
        try:
            response = api.raw("/healthz")
        except TailtraceError as error:
            return Finding("server", False, str(error))
        if response.is_success:
            health.update(response.json(), date=response.headers.get("date", ""), at=time.time())
            return Finding("server", True, f"{api.url} answers, up for {health.get('uptime_s', '?')} s")
        return Finding(
            "server", False, f"{api.url}/healthz answered {response.status_code}", "look at the server's log"
        )

    yield answers
    if not health:
        return
    yield lambda: _same_version(health)
    yield lambda: _clock(health)
    yield lambda: _ready(api)
    yield lambda: _own_figures(api)
    yield lambda: _span_there_and_back(api, endpoint, token)


def _same_version(health: dict[str, Any]) -> Finding:
    theirs = health.get("version", "unknown")
    if theirs == VERSION:
        return Finding("same version", True, f"server and command line are {VERSION}")
    return Finding(
        "same version", False, f"the server is {theirs}, this is {VERSION}", f"pip install tailtrace=={theirs}"
    )


def _clock(health: dict[str, Any]) -> Finding:
    if not health["date"]:
        return Finding("clock", True, "absent: the server sends no Date header")
    skew = parsedate_to_datetime(health["date"]).timestamp() - health["at"]
    if abs(skew) > _SKEW_S:
        return Finding("clock", False, f"the server's clock differs by {skew:+.0f} s", "synchronise both with NTP")
    return Finding("clock", True, f"within {_SKEW_S:.0f} s of the server's")


def _ready(api: ApiClient) -> Finding:
    response = api.raw("/readyz")
    if response.is_success:
        lags = response.json().get("lag_s", {})
        told = "; ".join(f"{job} is {lag:.0f} s behind" for job, lag in lags.items())
        return Finding("store", True, "the store takes and gives" + (f"; {told}" if told else ""))
    return Finding(
        "store",
        False,
        f"/readyz answered {response.status_code}: {response.text[:300]}",
        "see the server's log and free disk",
    )


def _own_figures(api: ApiClient) -> Finding:
    """What the server says of itself in /metrics: what waits, how far the jobs are, what was put aside."""
    response = api.raw("/metrics")
    if not response.is_success:
        return Finding("figures", True, f"absent: /metrics answered {response.status_code}")
    if not response.headers.get("content-type", "").startswith("text/plain"):
        return Finding("figures", True, "absent: this release of the server has no /metrics")
    figures: dict[str, float] = {}
    for line in response.text.splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#"):
            figures[name] = float(value)
    lag = figures.get('tailtrace_job_lag_seconds{job="requests"}', 0.0)
    waiting = figures.get("tailtrace_pipeline_journal_bytes", 0.0) / 1e6
    refused = int(figures.get("tailtrace_pipeline_refused_bodies_total", 0))
    rate = figures.get("tailtrace_pipeline_stored_items_per_second", 0.0)
    parts = int(max((n for name, n in figures.items() if name.startswith("tailtrace_table_parts")), default=0))
    dropped = int(sum(n for name, n in figures.items() if name.startswith("tailtrace_client_dropped_items_total")))
    told = (
        f"{rate:,.0f} items/s stored, {waiting:.1f} MB wait in the journal, jobs are {lag:.0f} s behind, at most "
        f"{parts} parts in a table, {dropped} items dropped by clients, {refused} bodies put aside"
    )
    if lag > _LAG_S:
        return Finding("figures", False, told, "the jobs do not keep up or stand still: see the worker's log")
    if parts > _PARTS:
        return Finding("figures", False, told, "merges do not keep up: give the store more memory or cores")
    if refused:
        return Finding("figures", False, told, "the store refused what the door took: see refused/ in the journal")
    return Finding("figures", True, told)


def _span_there_and_back(api: ApiClient, endpoint: str, token: str) -> Finding:
    """One span through the OTLP door, and its request through the API."""
    from tailtrace.cli.otlp_sender import OtlpSender
    from tailtrace.instrumentation.otlp import SpanData, encode_traces

    trace_id, now = os.urandom(16), time.time_ns()
    span = SpanData(
        trace_id=trace_id,
        span_id=os.urandom(8),
        parent_span_id=b"",
        name="doctor",
        kind=2,
        start_unix_ns=now - 1_000_000,
        end_unix_ns=now,
        attributes={"tailtrace.request": True, "tailtrace.outcome": "ok"},
    )
    resource = {"service.name": _SERVICE, "tailtrace.simulated": True}
    try:
        receipt = OtlpSender(endpoint, token).send("traces", encode_traces(resource, [span]), 1)
    except TailtraceError as error:
        return Finding("round trip", False, str(error))
    if receipt.rejected:
        return Finding("round trip", False, f"{endpoint} rejected the span: {receipt.reason}")
    sent = time.monotonic()
    while (waited := time.monotonic() - sent) < _FIND_S:
        try:
            api.get(f"requests/{trace_id.hex()}")
        except NotFound:
            time.sleep(0.1)
        else:
            return Finding("round trip", True, f"a span sent to {endpoint} was found again after {waited:.1f} s")
    return Finding(
        "round trip",
        False,
        f"a span was accepted at {endpoint} and not found at {api.url} within {_FIND_S:.0f} s",
        "are both addresses of the same server? see its log",
    )
