"""What a service is for, set or guessed, and the figures that follow from it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries.goals import goals_of, service_goals
from tailtrace.analytics.queries.why import why
from tailtrace.dashboard import create_app
from tailtrace.errors import ConfigError
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

MS = 1_000_000
WINDOW = (T0 + 3600 * SECOND, T0 + 4500 * SECOND)


def fill(store: Store, **columns: Any) -> None:
    """A request every ten seconds: 50 tokens, in the window half as many."""
    rows = [
        request(
            k, duration_ns=1000 * MS, end_ns=T0 + k * 10 * SECOND + SECOND, OutputTokens=50 - 25 * (k >= 360),
            GpuUuids="GPU-a,GPU-b", Replica="r", **columns,
        )
        for k in range(450)
    ]  # fmt: skip
    insert_requests(store, rows)


def test_streaming_makes_it_online_and_its_figures_those_of_waiting(store: Store) -> None:
    fill(store, TtftNs=100 * MS)
    found = why(store, "api", *WINDOW)
    assert (found.goal, found.goal_guessed) == ("online", True)
    first, later, goodput = found.figures
    assert (first.metric, first.before, first.during, first.better) == ("mean TTFT ms", 100.0, 100.0, "lower")
    assert (later.before, later.during) == (pytest.approx(900 / 49), pytest.approx(900 / 24))
    assert goodput.during == pytest.approx(0.1)


def test_without_first_tokens_it_is_offline_and_its_figures_those_of_work(store: Store) -> None:
    fill(store)
    found = why(store, "api", *WINDOW)
    assert (found.goal, found.goal_guessed) == ("offline", True)
    made, spent = found.figures
    assert (made.metric, made.better) == ("output tokens/s", "higher")
    assert (made.before, made.during) == (pytest.approx(5.0, rel=0.01), pytest.approx(2.5))
    assert (spent.before, spent.during) == (pytest.approx(0.4, rel=0.01), pytest.approx(0.8))


def test_what_is_set_wins_and_a_question_may_differ(store: Store, settings: ServerSettings) -> None:
    fill(store)
    told = settings.model_copy(update={"goals": "other=offline api=online"})
    client = TestClient(create_app(store, told), base_url="http://127.0.0.1:8050")
    asked = {"service": "api", "since": str(WINDOW[0]), "until": str(WINDOW[1])}
    body = client.get("/api/v1/why", params=asked).json()
    assert (body["goal"], body["goal_guessed"]) == ("online", False)
    assert client.get("/api/v1/why", params={**asked, "goal": "offline"}).json()["goal"] == "offline"


def test_an_engines_first_token_of_an_answer_that_was_not_streamed_makes_nobody_wait(store: Store) -> None:
    """Both guesses, of the headline and of alerts, say the same; what is set wins."""
    fill(store, TtftNs=100 * MS, Streaming="false")
    assert why(store, "api", *WINDOW).goal == "offline"
    assert service_goals(store, {}) == {"api": "offline"}
    assert service_goals(store, {"api": "online", "other": "offline"}) == {"api": "online", "other": "offline"}


def test_goals_of_services_are_guessed_from_the_day_before_the_newest_data(store: Store) -> None:
    fill(store, TtftNs=100 * MS)
    insert_requests(
        store, [request(1000 + k, duration_ns=MS, end_ns=T0 + (200_000 + k) * SECOND, Service="b") for k in range(9)]
    )
    assert service_goals(store, {}) == {"b": "offline"}


@pytest.mark.parametrize("text", ["api", "api=fast", "=online", "api=online, b=offline"])
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="goals are SERVICE=online"):
        goals_of(text)
    assert goals_of("a=online  b=c=offline ") == {"a": "online", "b=c": "offline"}
