"""What rules and objectives of work done say on their pages."""

from __future__ import annotations

import pytest

from tailtrace.analytics.alerting.rules import parse_rule
from tailtrace.analytics.queries.objectives import Objective
from tailtrace.dashboard.pages.rules import sentence
from tailtrace.dashboard.pages.slos import goal
from tailtrace.dashboard.text import Text

EN = Text("en")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({}, "every service: a confirmed change of the figures that its goal is about"),
        ({"metrics": ["ttft"]}, "every service: a confirmed change of time to first token"),
        (
            {"kind": "slo", "sli": "tokens_per_s", "tokens_per_s": 2000, "objective": 0.9},
            "every service: 90 % of requests good by tokens per second at least 2000 tokens/s",
        ),
        (
            {"kind": "slo", "sli": "per_token", "within": "40ms", "objective": 0.9},
            "every service: 90 % of requests good by time per output token, all of the request 40ms",
        ),
    ],
)
def test_a_rule_in_one_line(rule: dict[str, object], words: str) -> None:
    assert sentence(EN, parse_rule({"name": "r", **rule})) == words


def test_an_objective_on_tokens_a_second_says_the_least_of_them() -> None:
    one = Objective(
        "r", "batch", "", "tokens_per_s", 0.9, {}, 2000.0, "0", "clear", "ok", 0.95, 100, 0.5, []
    )  # fmt: skip
    assert goal(EN, one) == "90 % at least 2,000 tokens/s"
