"""`tailtrace up --sample`: the sampler as a child of the server."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tailtrace.cli.processes import sampler
from tailtrace.errors import ConfigError


class Child:
    def __init__(self, command: list[str], say: Any, environment: dict[str, str]) -> None:
        self.command, self.environment, self.ended = command, environment, False

    def end(self, seconds: float) -> None:
        self.ended = True


def settings(port: int) -> Any:
    return SimpleNamespace(host="127.0.0.1", otlp_http_port=port, token="secret")


def test_it_sends_to_this_server_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "Companion", Child)
    child: Any
    with sampler.sampling(settings(4318)) as child:
        assert child.command[1:4] == ["-m", "tailtrace", "sample"]
        assert "--endpoint=http://127.0.0.1:4318" in child.command
        assert f"--parent={os.getpid()}" in child.command
        # On a command line everybody on the machine could read it.
        assert child.environment["TAILTRACE_TOKEN"] == "secret"
        assert not any("secret" in word for word in child.command)
    assert child.ended


def test_without_a_door_to_send_through_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="otlp-http-port"), sampler.sampling(settings(0)):
        pass
