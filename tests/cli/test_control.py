"""A command speaks to the owner of a directory through a socket inside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tailtrace.cli.processes.control import Control, ask
from tailtrace.errors import ConfigError, StoreError


def refuse(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    raise ConfigError("not like this")


@pytest.mark.parametrize("folder", ["short", "long" * 40])
def test_a_question_is_answered(tmp_path: Path, folder: str) -> None:
    data = tmp_path / folder
    data.mkdir()
    (data / "control.sock").touch()  # of a dead owner
    control = Control(data, {"double": lambda asked: {"n": 2 * asked["n"]}, "refuse": refuse})
    try:
        assert (data / "control.sock").stat().st_mode & 0o777 == 0o600
        assert ask(data, "double", n=21) == {"n": 42}
        with pytest.raises(ConfigError, match="not like this"):
            ask(data, "refuse")
        with pytest.raises(StoreError, match="KeyError"):
            ask(data, "unknown")
        assert ask(data, "double", n=1) == {"n": 2}
    finally:
        control.stop()
    with pytest.raises(StoreError, match="does not answer"):
        ask(data, "double", n=1)


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not answer"):
        ask(tmp_path, "double")


def test_on_a_server_the_statement_is_named(tailtrace: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILTRACE_CLICKHOUSE_URL", "http://u:p@127.0.0.1:1/tailtrace")
    told = tailtrace("backup", str(tmp_path / "b"))
    assert (told.code, "BACKUP DATABASE tailtrace" in told.err) == (2, True)
