from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tailtrace.causes import BY_CODE
from tailtrace.errors import ConfigError, NotFound
from tailtrace.lab import history, history_metrics
from tailtrace.lab.effects import EFFECTS, SCALING
from tailtrace.lab.scenario import FOLDER, REMOVED, Scenario, list_scenarios, parse
from tailtrace.stages import BY_NAME

GOOD = """
[[fleet.service]]
name = "chat"
replicas = 2
[[traffic]]
service = "chat"
rate = 1.0
"""


def test_every_shipped_scenario_is_valid_and_says_what_it_is() -> None:
    titles = list_scenarios()
    assert {"healthy", "idle", "demo", "mixed", *EFFECTS} <= set(titles)
    assert all(titles.values())
    for name in EFFECTS:
        assert [fault.code for fault in Scenario.load(name).faults] == [name]


def test_effects_use_the_vocabularies() -> None:
    for code, effect in EFFECTS.items():
        assert effect.stage in BY_NAME or code == "no_work"
        assert BY_CODE[code].stage in ("", effect.stage)
        assert effect.knobs


def test_times_are_seconds_or_carry_a_unit_and_negative_ones_count_from_the_end() -> None:
    text = GOOD + '[[cause]]\ncode = "throttled"\nat = "-5m"\nfor = 90\n[[cause]]\ncode = "capacity"\nat = "2h"\n'
    scenario = parse(tomllib.loads(text), "x")
    hour = 3600 * 10**9
    assert scenario.faults[0].window_ns(hour) == (3300 * 10**9, 3390 * 10**9)
    assert scenario.faults[1].window_ns(3 * hour) == (2 * hour, 3 * hour)
    assert scenario.faults[1].window_ns(hour) == (hour, hour)


def test_a_rate_is_shared_as_before() -> None:
    scenario = Scenario.load("healthy").scaled(10.0)
    assert sum(traffic.rate for traffic in scenario.traffic) == pytest.approx(10.0)
    assert scenario.traffic[0].rate == pytest.approx(10.0 * 0.35 / 0.57)
    assert scenario.traffic[0].tokens == 1.0
    assert Scenario.load("live").scaled(40.0, hold_load=True).traffic[0].tokens == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one service"),
        (GOOD + 'speed = 3', r"\[\[traffic\]\] 1: unknown key 'speed'; known are service, rate"),
        (GOOD.replace("rate = 1.0", 'rate = "fast"'), "rate must be a number, got 'fast'"),
        (GOOD.replace("rate = 1.0", ""), "'rate' is missing"),
        (GOOD.replace("replicas = 2", "replicas = true"), "replicas must be an integer, got True"),
        (GOOD.replace("replicas = 2", "replicas = 0"), "must be 1 or more"),
        (GOOD.replace('service = "chat"', 'service = "talk"'), "no service 'talk'; there are chat"),
        (GOOD + "abort = 1.5", "abort must be between 0 and 1, got 1.5"),
        (GOOD + '[[cause]]\ncode = "gremlins"\nat = 1', "the lab cannot make 'gremlins'; it can make client_link"),
        (GOOD + '[[cause]]\ncode = "throttled"\nat = "soon"', "at must be seconds or .* got 'soon'"),
        (GOOD + '[[cause]]\ncode = "throttled"\nat = 1\ntarget = "chat/2"', "'chat/2' is no replica of chat"),
        (GOOD + '[[cause]]\ncode = "throttled"\nat = 1\nstrength = -1', "strength must be 0 or more"),
        (GOOD + '[[cause]]\ncode = "throttled"\nat = 1\nfor = 0', "for must be above 0"),
        (GOOD + '[[deploy]]\nservice = "talk"\nversion = "2"\nat = 1', r"\[\[deploy\]\]: no service 'talk'"),
        ("fleet = 3\n", "expected"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(tomllib.loads(text), "x")


def test_unknown_names_and_files_that_are_not_toml(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no scenario 'nope'; there are auth_dependency"):
        Scenario.load("nope")
    with pytest.raises(NotFound, match="No such file"):
        Scenario.load(tmp_path / "absent.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("= 3")
    with pytest.raises(ConfigError, match=r"bad\.toml is not TOML"):
        Scenario.load(bad)


def test_scaling_knobs_are_knobs() -> None:
    used = {knob for effect in EFFECTS.values() for knob in effect.knobs}
    assert used >= SCALING
    assert len(list(FOLDER.glob("*.toml"))) == len(list_scenarios())


def test_another_seed_is_another_fleet_with_the_same_story() -> None:
    base = Scenario.load("throttled")
    drawn = [base.drawn(seed) for seed in range(8)]
    assert drawn[3] == base.drawn(3)
    assert len({each.service("llm-chat").replicas for each in drawn}) > 1
    for each in drawn:
        assert [fault.code for fault in each.faults] == ["throttled"]
        grown = each.service("llm-chat").replicas / base.service("llm-chat").replicas
        assert 0.85 <= each.traffic[0].rate / base.traffic[0].rate / grown <= 1.1


def test_evidence_can_be_removed_and_late_replicas_need_a_fleet() -> None:
    text = GOOD + '[evidence]\ngpm = false\nspans = "sparse"\n'
    assert parse(tomllib.loads(text), "x").evidence.gpm is False
    with pytest.raises(ConfigError, match="spans must be all or sparse"):
        parse(tomllib.loads(text.replace("sparse", "few")), "x")
    late = GOOD.replace("replicas = 2", "replicas = 1") + '[[cause]]\ncode = "scale_up_late"\nat = 1\n'
    with pytest.raises(ConfigError, match="the service needs two"):
        parse(tomllib.loads(late), "x")


def test_there_is_a_scenario_for_every_cause_and_every_situation() -> None:
    """Each cause of the vocabulary (unknown is none), two at once, nothing wrong, and only other traffic."""
    loaded = {name: Scenario.load(name) for name in list_scenarios()}
    alone = {scenario.faults[0].code for scenario in loaded.values() if len(scenario.faults) == 1}
    assert alone == set(BY_CODE) - {"unknown"}
    pairs = [scenario for scenario in loaded.values() if len({fault.code for fault in scenario.faults}) == 2]
    assert len(pairs) >= 3
    assert {"busy", "idle", "healthy_hour"} <= {name for name, scenario in loaded.items() if not scenario.faults}
    assert [fault.code for fault in loaded["traffic_changed"].faults] == ["traffic_changed"]


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_any_scenario_can_be_told_with_less_evidence(name: str) -> None:
    whole = Scenario.load("throttled")
    less = Scenario.load(f"throttled+{name}")
    assert less.name == f"throttled+{name}"
    assert (less.fleet, less.traffic, less.faults) == (whole.fleet, whole.traffic, whole.faults)
    changed = [each for each in ("sampler", "gpm", "steps", "spans")
               if getattr(less.evidence, each) != getattr(whole.evidence, each)]  # fmt: skip
    assert len(changed) == 1
    assert whole.without("no_gpm", "no_steps") == Scenario.load("throttled+no_gpm+no_steps")


def test_what_is_taken_away_is_not_told() -> None:
    def told(name: str) -> tuple[str, str]:
        scenario, end = Scenario.load(name), 1_790_000_000_000_000_000
        spans = b"".join(history(scenario, end_unix_ns=end, hours=0.2, seed=3))
        return str(spans), str(b"".join(history_metrics(scenario, end_unix_ns=end, hours=0.2, seed=3)))

    spans, counters = told("throttled")
    assert "tailtrace.steps" in spans
    assert "prefill" in spans
    assert "sm_active" in counters
    assert "sm_active" not in told("throttled+no_gpm")[1]
    assert told("throttled+no_sampler")[1] == "b''"
    assert "tailtrace.steps" not in told("throttled+no_steps")[0]
    assert len(told("throttled+sparse_spans")[0]) < 0.7 * len(spans)


def test_a_name_with_a_plus_that_removes_nothing_is_unknown() -> None:
    with pytest.raises(NotFound, match="no scenario 'throttled\\+no_luck'"):
        Scenario.load("throttled+no_luck")
