"""Rules and channels: one model, clear refusals, no secret given back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailtrace.analytics.alerting import book, limits
from tailtrace.analytics.alerting.message import text_of
from tailtrace.analytics.alerting.rules import load_file, parse_channel, parse_rule, span_ns
from tailtrace.analytics.alerting.text import harmless
from tailtrace.errors import ConfigError, Rejected
from tailtrace.ingest.store import Store


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "r", "kind": "threshold", "metric": "ttft", "above": "2"}, "above: a time is a number and a unit"),
        ({"name": "r", "kind": "threshold", "metric": "ttft", "above": "1s", "clear": "2s"}, "clear (2s) is above"),
        ({"name": "r", "kind": "slo", "sli": "ttft", "objective": 0.99}, "needs `within`"),
        ({"name": "r", "kind": "slo", "sli": "per_token", "objective": 0.99}, "needs `within`"),
        ({"name": "r", "kind": "slo", "sli": "tokens_per_s", "objective": 0.99}, "needs the least of them"),
        ({"name": "r", "servce": "x"}, "servce: Extra inputs are not permitted"),
        ({"name": ""}, "name: String should have at least 1 character"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_with_the_reason(body: dict[str, object], words: str) -> None:
    with pytest.raises(Rejected, match="rule") as error:
        parse_rule(body)
    assert words in str(error.value)


def test_a_percentile_needs_its_requests() -> None:
    rule = parse_rule({"name": "r", "kind": "threshold", "metric": "ttft", "above": "1s"})
    assert (rule.fewest, rule.clear_ns) == (1000, 900_000_000)
    assert span_ns("1.5s") == 1_500_000_000


def test_the_file_wins_and_cannot_be_changed_by_the_api(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "alerts.toml"
    file.write_text(
        '[[rule]]\nname = "mine"\nat_least = 0.1\n\n[[channel]]\nname = "c"\nurl = "https://x.example/?k=s3"\n'
    )
    kept = book.load(store, file)
    assert list(kept.rules) == ["mine"]
    with pytest.raises(Rejected, match="is in the rules file"):
        book.put(store, kept, "rule", parse_rule({"name": "mine"}))
    book.put(store, kept, "rule", parse_rule({"name": "other", "service": "api"}))
    assert set(book.load(store, file).rules) == {"mine", "other"}
    book.delete(store, book.load(store, file), "rule", "other")
    assert set(book.load(store, file).rules) == {"mine"}


def test_without_rules_regressions_of_everything_are_watched(store: Store) -> None:
    assert [rule.kind for rule in book.load(store, None).rules.values()] == ["regression"]


def test_a_broken_file_says_where(tmp_path: Path) -> None:
    file = tmp_path / "alerts.toml"
    file.write_text('[[rules]]\nname = "x"\n')
    with pytest.raises(ConfigError, match=r"alerts.toml: expected \[\[rule\]\] and \[\[channel\]\]; got rules"):
        load_file(file)


def test_no_secret_is_shown() -> None:
    slack = parse_channel({"name": "s", "kind": "apprise", "url": "slack://T1/B2/secret"})
    hook = parse_channel({"name": "h", "url": "https://user:pw@hooks.example/abc/token", "secret": "k"})
    assert slack.shown() == {"name": "s", "kind": "apprise", "url": "slack://...", "signed": False}
    assert hook.shown() == {"name": "h", "kind": "webhook", "url": "https://hooks.example...", "signed": True}
    assert "token" not in repr(hook)
    assert "'k'" not in repr(hook)


def test_hostile_text_is_inert_in_chats() -> None:
    hostile = "<!channel> @here [x](http://evil.example) `rm` **b**\n\u202egnp.exe www.evil.example"
    plain = harmless(hostile)
    for mark in ("<", ">", "@", "[", "](", "`", "*", "\n", "\u202e", "://", "www."):
        assert mark not in plain
    assert len(harmless("x" * 1000)) == 120


def test_few_requests_neither_fire_nor_clear() -> None:
    values, n = np.array([30.0, 30.0]), np.array([3, 3])
    assert limits.held(values, n, above=1.0, clear=0.9, fewest=1000) == "not_enough"
    assert limits.held(values, np.array([1000, 1000]), above=1.0, clear=0.9, fewest=1000) == "firing"
    assert limits.held(np.array([0.95, 0.95]), n, above=1.0, clear=0.9, fewest=1) == "between"
    assert limits.held(np.array([0.5, 0.9]), n, above=1.0, clear=0.9, fewest=1) == "clear"


def test_a_merged_percentile_is_no_percentile_of_percentiles() -> None:
    """999 requests in bucket 0 and one in bucket 3: P99 of the two minutes is bucket 0."""
    histogram = np.array([[999.0, 0, 0, 0], [0, 0, 0, 1.0]])
    at, n = limits.sliding_percentile(histogram, 2, 0.99)
    assert (at.tolist(), n.tolist()) == ([0], [1000.0])


def test_burn_rates_need_both_windows() -> None:
    total = np.full(4320, 100.0)
    bad = np.zeros(4320)
    assert limits.burning(bad, total, 0.99, 100) == ("clear", 0.0)
    bad[-60:] = 20.0
    state, rate = limits.burning(bad, total, 0.99, 100)
    assert (state, round(rate)) == ("firing", 20)
    bad[-30:] = 0.0
    assert limits.burning(bad, total, 0.99, 100)[0] == "between"
    bad[-360:] = 0.0
    assert limits.burning(bad, total, 0.99, 100)[0] == "clear"
    assert limits.burning(bad[:30], total[:30] * 0, 0.99, 100) == ("not_enough", 0.0)


def test_a_digest_in_words() -> None:
    title, text = text_of(
        {"event": "digest", "alerts": [{"summary": "a"}, {"summary": "b"}], "links": {"alerts": "http://x/alerts"}}
    )
    assert title == "Tailtrace: 2 alerts"
    assert text == "- a\n- b\n\nhttp://x/alerts"
