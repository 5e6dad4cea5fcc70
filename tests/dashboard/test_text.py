"""The catalogue: complete in both languages, and every key that the code uses is in it."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from tailtrace.analytics.queries.compare import CONDITIONS
from tailtrace.dashboard.colours import contrast, ink_on
from tailtrace.dashboard.format import duration, parse_duration, share
from tailtrace.dashboard.text import Text, catalogue, text_of_request
from tailtrace.errors import Rejected
from tailtrace.instrumentation.sampler.nvml import REASONS
from tailtrace.stages import STAGES, UNEXPLAINED, UNEXPLAINED_DARK, UNEXPLAINED_LIGHT

ROOM = Path(__file__).resolve().parents[2] / "dashboard"


def placeholders(words: str) -> set[str]:
    return {name.split("|")[0] for _, name, _, _ in Formatter().parse(words) if name}


def test_both_languages_have_the_same_keys_and_values() -> None:
    english, chinese = catalogue("en"), catalogue("zh")
    assert set(english) == set(chinese)
    for key in english:
        assert placeholders(english[key]) == placeholders(chinese[key]), key
        assert english[key].strip()
        assert chinese[key].strip()


def test_keys_in_the_code_exist() -> None:
    used = {key for path in ROOM.rglob("*.py") for key in re.findall(r'\btext\(\s*"([^"{}]+)"', path.read_text())}
    assert len(used) > 50
    assert used - set(catalogue("en")) == set()


def test_every_stage_has_a_name_and_a_meaning() -> None:
    words = catalogue("zh")
    for name in (*(stage.name for stage in STAGES), UNEXPLAINED):
        assert f"stage.{name}" in words
        assert f"meaning.{name}" in words


def test_the_reader_chooses_the_language() -> None:
    assert text_of_request("zh-CN,zh;q=0.9,en;q=0.8", {}).language == "zh"
    assert text_of_request("fr,en;q=0.8", {}).language == "en"
    assert text_of_request("fr", {}).language == "en"
    assert text_of_request("zh", {"tailtrace_language": "en"}).language == "en"
    assert text_of_request("en", {"tailtrace_language": "../../etc/passwd"}).language == "en"


def test_a_missing_key_is_an_error() -> None:
    with pytest.raises(KeyError):
        Text("en")("no.such.key")


def test_one_is_no_plural() -> None:
    said = [Text(language)("overview.requests", n=n) for language in ("en", "zh") for n in ("1", "12")]
    assert said == ["1 request", "12 requests", "1 个请求", "12 个请求"]


def test_flags_reasons_and_conditions_have_words() -> None:
    rows = (ROOM.parent / "analytics/judge/rows.py").read_text()
    flags = {*re.findall(r'^        \("(\w+)", ', rows, re.MULTILINE), "engine_negative", "engine_clipped"}
    assert {"parent_missing", "backfill"} < flags
    named = {f"flag.{name}" for name in flags} | {f"condition.{name}" for name in CONDITIONS}
    named |= {f"absent.{reason}" for reason in REASONS.values()}
    assert named - set(catalogue("en")) == set()


def test_durations_read_well() -> None:
    assert [duration(ns) for ns in (None, 0, 7, 1500, 999_600, 12_345_678, 2_100_000_000)] == [
        "–", "0", "7 ns", "1.50 µs", "1.00 ms", "12.3 ms", "2.10 s",
    ]  # fmt: skip
    assert [duration(s * 10**9) for s in (125, 1500, 5400, 7200)] == ["2 min 5 s", "25 min", "1 h 30 min", "2 h"]
    assert [share(part) for part in (None, 0.0, 0.0004, 0.042, 0.61, 1.0)] == [
        "–",
        "0.0 %",
        "<0.1 %",
        "4.2 %",
        "61 %",
        "100 %",
    ]


def test_durations_are_read() -> None:
    assert [parse_duration(words) for words in ("", "500", "500ms", "1.5 s", "250us", "2m")] == [
        None, 500_000_000, 500_000_000, 1_500_000_000, 250_000, 120_000_000_000,
    ]  # fmt: skip
    with pytest.raises(Rejected, match="500ms"):
        parse_duration("soon")


def test_labels_on_stage_colours_can_be_read() -> None:
    colours = [colour for stage in STAGES for colour in (stage.light, stage.dark)] + [
        UNEXPLAINED_LIGHT,
        UNEXPLAINED_DARK,
    ]
    assert min(contrast(ink_on(colour), colour) for colour in colours) >= 4.5
