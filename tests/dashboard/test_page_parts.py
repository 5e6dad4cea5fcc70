"""Parts of pages as the server draws them: starts, tokens, losses, intervals without an end."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from dash import html
from page_words import words_of
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries.gpu_idle import GpuIdle, GpuLane, GpuStretch
from tailtrace.analytics.queries.percentiles import Percentile
from tailtrace.analytics.queries.recorded import RecordedChange, RecordedMarker
from tailtrace.analytics.verdicts.idle import Cell
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.markers import mark
from tailtrace.dashboard.components.marks import percentile_mark
from tailtrace.dashboard.components.page import newest_words
from tailtrace.dashboard.components.ribbon import drawn_stretches
from tailtrace.dashboard.pages import health, replicas
from tailtrace.dashboard.pages import settings as settings_page
from tailtrace.dashboard.pages.overview_words import troubles
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.ingest.tokens import TokenFile, tokens_file

ENGLISH = Text("en")


def test_starts_of_replicas_are_told(store: Store, settings: ServerSettings) -> None:
    started = {"Kind": "startup", "IsRoot": False, "Service": "engine", "Replica": "r7", "ModelLoadNs": 40 * SECOND}
    insert_requests(
        store,
        [
            *(request(n, duration_ns=SECOND, end_ns=T0 - n * SECOND) for n in range(5)),
            request(900, duration_ns=60 * SECOND, end_ns=T0 - 600 * SECOND, **started),
        ],
    )
    said = list(words_of(replicas.draw(store, settings, ENGLISH, "/replicas", Address())))
    assert "No replica is known to have run these requests" in said  # and its starts are told all the same
    assert {"Starts", "r7", "60.0 s"} <= set(said)
    assert any(words.startswith("model load") for words in said)


def test_settings_name_the_tokens_and_never_show_one(store: Store, settings: ServerSettings) -> None:
    def said() -> str:
        return " ".join(words_of(settings_page.draw(store, settings, ENGLISH, "/settings", Address())))

    assert "Nobody needs a token" in said()
    assert "no token: this machine only" in said()
    secret = TokenFile(tokens_file(settings)).create("grafana", ["read"])
    assert "a token is needed" in said()
    assert "grafana read 20" in said()
    assert secret not in said()


def test_health_tells_rates_losses_and_ages(store: Store, settings: ServerSettings) -> None:
    rows = [request(n, duration_ns=SECOND, end_ns=T0 - n * SECOND, SpanCount=4) for n in range(301)]
    insert_requests(store, [*rows, request(999, duration_ns=SECOND, end_ns=T0, Flags=["orphans"])])
    store.command(
        "INSERT INTO losses (Time, Signal, Kind, Reason, Count) VALUES (now(), 'traces', 'rejected', 'bad_span_id', 3)"
    )
    kept = settings.model_copy(update={"retention_days": 7, "derived_retention_days": 90})
    said = list(words_of(health.draw(store, kept, ENGLISH, "/health", Address())))
    at = said.index("api")
    assert said[at + 1 : at + 3] == ["1.0/s", "4.0/s"]
    assert {"not a span id", "a span's parent never came (requests of the last hour)"} <= set(said)
    assert any("go after 7 days" in words and "go after 90 days" in words for words in said)


def test_an_interval_is_drawn_as_far_as_it_is_known() -> None:
    def said(low: int | None, high: int | None) -> list[str]:
        drawn = percentile_mark(ENGLISH, Percentile(0.99, 2 * SECOND, low, high, 1, True))
        return list(words_of(html.Div(drawn)))[:2]

    assert said(SECOND, 3 * SECOND) == ["1.00 s … 3.00 s", "n=1"]
    assert said(SECOND, None) == ["> 1.00 s", "n=1"]
    assert said(None, 3 * SECOND) == ["< 3.00 s", "n=1"]
    assert said(None, None) == ["2.00 s", "n=1"]


def test_too_many_stretches_are_drawn_coarser_and_none_is_left_out() -> None:
    busy, idle = Cell("busy", "unknown", 1.0), Cell("idle", "no_work", 0.0)
    lanes = [GpuLane(f"GPU-{n}", "r", [busy, busy, idle, busy]) for n in range(3)]
    first = [GpuStretch("GPU-0", "r", "busy", "unknown", "0", 5)]
    few = GpuIdle("s", "0", "40", 1, 3, 120, [], lanes, first, 1, 1, [])
    assert drawn_stretches(few) is first
    many = replace(few, stretches_total=9)
    found = [(one.gpu, one.state, int(one.start_unix_ns), one.duration_ns) for one in drawn_stretches(many)]
    assert found[:3] == [("GPU-0", "busy", 0, 20), ("GPU-0", "idle", 20, 10), ("GPU-0", "busy", 30, 10)]
    assert [gpu for gpu, *_ in found[::3]] == ["GPU-0", "GPU-1", "GPU-2"]


def test_deploys_of_others_say_whose_they_are() -> None:
    marks = [
        RecordedMarker(str(n), str(T0), name, "version", "1", "2", "") for n, name in enumerate(("api", "llm", ""))
    ]
    notes = mark({"layout": {}}, ENGLISH, marks, service="api")["layout"]["annotations"]
    assert [note["text"] for note in notes] == ["2", "llm 2", "2"]
    assert "llm Service version 1 → 2" in notes[1]["hovertext"]


def test_the_trouble_that_is_told_goes_on_is_sure_and_departs_most() -> None:
    def change(metric: str, state: str, departure: float, until: str | None = None) -> RecordedChange:
        return RecordedChange(metric, metric, "api", "m", state, "1", until, departure, "queue", 1.0, "")

    figures: Any = SimpleNamespace(services=[SimpleNamespace(service="api", requests=100, error_share=0.0)])
    nobody: Any = SimpleNamespace(movers=[])
    faint, strong = change("tpot", "confirmed", 1.5), change("ttft", "confirmed", 33.0)
    others = [change("duration", "resolved", 60.0, "2"), change("duration", "dismissed", 90.0)]
    assert troubles(figures, nobody, [faint, strong, *others])["api"].change is strong
    assert troubles(figures, nobody, others)["api"].over
    assert troubles(figures, nobody, others[1:]) == {}


def test_a_list_that_is_cut_says_so() -> None:
    assert [newest_words(ENGLISH, n) for n in (3, 199, 200)] == ["3", "199", "the newest 200"]
