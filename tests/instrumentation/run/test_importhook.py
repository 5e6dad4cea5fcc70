"""Calling a function when a module is imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tailtrace.instrumentation.run.importhook import when_imported


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"watched_{tmp_path.name.replace('-', '_')}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("value = 1\n")
    (tmp_path / name / "inner.py").write_text("value = 2\n")
    (tmp_path / name / "broken.py").write_text("raise ValueError('theirs')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_called_once_after_the_module_has_run(package: str) -> None:
    seen: list[Any] = []
    when_imported(f"{package}.inner", lambda module: seen.append((module.__name__, module.value)))
    importlib.import_module(package)
    assert seen == []
    importlib.import_module(f"{package}.inner")
    importlib.reload(sys.modules[f"{package}.inner"])
    assert seen == [(f"{package}.inner", 2)]


def test_called_at_once_for_a_module_that_is_there(package: str) -> None:
    importlib.import_module(package)
    seen: list[Any] = []
    when_imported(package, seen.append)
    assert [module.value for module in seen] == [1]


def test_a_module_that_fails_or_is_missing_fails_as_without_us(package: str) -> None:
    seen: list[Any] = []
    when_imported(f"{package}.broken", seen.append)
    when_imported(f"{package}.missing", seen.append)
    with pytest.raises(ValueError, match="theirs"):
        importlib.import_module(f"{package}.broken")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.missing")
    assert seen == []
