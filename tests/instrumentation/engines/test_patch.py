"""Replacing functions of other libraries: checked first, once, and said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tailtrace.instrumentation.engines import patch


@pytest.fixture
def library() -> str:
    patch.hooked.pop("lib", None)
    patch.refused.pop("lib", None)
    return "lib"


def module() -> Any:
    class Engine:
        def step(self, batch: list[int], throttle: bool = False) -> int:
            return len(batch)

    return SimpleNamespace(Engine=Engine)


def plus_one(original: Any) -> Any:
    def step(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) + 1

    return step


def test_replaced_once_however_often_it_is_asked_for(library: str) -> None:
    lib = module()
    assert patch.replace(library, lib, "Engine.step", plus_one, needs=("batch",))
    assert patch.replace(library, lib, "Engine.step", plus_one, needs=("batch",))
    assert lib.Engine().step([1, 2]) == 3
    assert patch.hooked["lib"] == ["Engine.step"]


@pytest.mark.parametrize(
    ("path", "needs", "reason"),
    [
        ("Engine.gone", (), "not there"),
        ("Gone.step", (), "not there"),
        ("Engine.step", ("requests",), "has no parameter requests"),
    ],
)
def test_a_hook_point_that_changed_is_left_alone_and_said(
    library: str, path: str, needs: tuple[str, ...], reason: str
) -> None:
    lib = module()
    assert not patch.replace(library, lib, path, plus_one, needs=needs, gives="queue")
    assert lib.Engine().step([1, 2]) == 2
    assert patch.refused["lib"] == {path: reason}
    assert f"lib (0 of 1; without {path}: {reason})" in patch.summary()
