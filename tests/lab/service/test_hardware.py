from __future__ import annotations

import pytest

from tailtrace.errors import ConfigError
from tailtrace.lab.service.hardware import Curve, curves


def test_measured_points_are_met_exactly() -> None:
    prefill, decode = curves("llama2-70b", "h100-80gb", 4)
    assert prefill.at(2048) == pytest.approx(200_700_000, rel=0.01)
    assert decode.at(32) == pytest.approx(36_900_000, rel=0.01)


def test_lines_between_points_and_beyond_the_last() -> None:
    curve = Curve((1, 3, 5), (10, 30, 70))
    assert [curve.at(size) for size in (0, 1, 2, 4, 5, 6)] == [10, 10, 20, 50, 70, 90]


def test_more_work_never_takes_less_time() -> None:
    for gpu in ("a100-80gb", "h100-80gb"):
        for curve in curves("llama2-70b", gpu, 8):
            times = [curve.at(size) for size in range(1, 12_000, 37)]
            assert times == sorted(times)


def test_what_was_not_measured_is_refused_with_what_was() -> None:
    with pytest.raises(
        ConfigError, match=r"no measured times for llama2-70b on 3 x h100-80gb; there are: .*4 x h100-80gb"
    ):
        curves("llama2-70b", "h100-80gb", 3)
