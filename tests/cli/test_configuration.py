"""Settings from flags, environment and file, and what is refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtrace.cli.configuration import load_settings
from tailtrace.errors import ConfigError


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("TAILTRACE_"):
            monkeypatch.delenv(name)


def test_flags_stand_above_environment_above_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.toml").write_text('port = 1001\notlp_http_port = 1002\notlp_grpc_port = 1003\nhost = "127.0.0.9"\n')
    monkeypatch.setenv("TAILTRACE_OTLP_HTTP_PORT", "2002")
    monkeypatch.setenv("TAILTRACE_OTLP_GRPC_PORT", "2003")
    settings = load_settings({"otlp_grpc_port": 3003, "data": None}, tmp_path / "t.toml")
    assert (settings.port, settings.otlp_http_port, settings.otlp_grpc_port) == (1001, 2002, 3003)
    assert settings.host == "127.0.0.9"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "unknown setting prot; did you mean port?"),
        ("port = 'x", "not TOML"),
        ("port = 'many'", "--port: "),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_settings({}, tmp_path / "t.toml")
    assert words in str(error.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings({}, tmp_path / "t.toml")


def test_a_value_out_of_range_names_its_option() -> None:
    with pytest.raises(ConfigError, match=r"--otlp-http-port: .*65535.*got 70000"):
        load_settings({"otlp_http_port": 70000})


def test_other_machines_are_let_in_only_with_a_token_or_on_purpose() -> None:
    with pytest.raises(ConfigError, match="--token"):
        load_settings({"host": "0.0.0.0"})
    assert load_settings({"host": "0.0.0.0", "token": "t"}).token == "t"
    assert load_settings({"host": "0.0.0.0", "insecure": True}).insecure
    assert load_settings({"host": "127.0.0.2"}).token == ""
