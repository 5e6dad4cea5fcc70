"""Scoped tokens: made, checked, revoked, never kept."""

import stat
from pathlib import Path

import pytest

from tailtrace.errors import ConfigError, NotFound
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.tokens import SCOPES, TokenFile, Tokens, session_value


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 2.0
        return self.now


def tokens(tmp_path: Path, token: str = "") -> Tokens:
    return Tokens(ServerSettings(data=tmp_path, token=token), Clock())


def may(book: Tokens, token: str) -> list[str]:
    return [scope for scope in SCOPES if book.allows(token, scope)]


def test_without_any_token_everybody_may_do_everything(tmp_path: Path) -> None:
    book = tokens(tmp_path)
    assert not book.required()
    assert book.header_allows("", "admin")


def test_scopes_are_kept_apart_and_admin_may_do_all(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    ingest, read = file.create("collector", ["ingest"]), file.create("grafana", ["read"])
    both, admin = file.create("both", ["ingest", "read"]), file.create("root", ["admin"])
    book = tokens(tmp_path)
    assert book.required()
    assert [may(book, token) for token in (ingest, read, both, admin, "tt_wrong", "")] == [
        ["ingest"], ["read"], ["ingest", "read"], ["ingest", "read", "admin"], [], []
    ]  # fmt: skip
    assert book.header_allows(f"Bearer {ingest}", "ingest")
    assert not book.header_allows(f"Basic {ingest}", "ingest")
    assert book.session_allows(session_value(read), "read")
    assert not book.session_allows(read, "read")
    assert not book.allows(session_value(read), "read")


def test_the_file_holds_no_secret_and_is_the_owners_alone(tmp_path: Path) -> None:
    token = TokenFile(tmp_path / "tokens.json").create("x", ["read"])
    text = (tmp_path / "tokens.json").read_text()
    assert token not in text
    assert session_value(token) not in text
    assert stat.S_IMODE((tmp_path / "tokens.json").stat().st_mode) == 0o600


def test_a_running_door_sees_new_and_revoked_tokens(tmp_path: Path) -> None:
    book, file = tokens(tmp_path, token="static"), TokenFile(tmp_path / "tokens.json")
    assert may(book, "static") == list(SCOPES)
    token = file.create("x", ["ingest"])
    assert may(book, token) == ["ingest"]
    file.revoke("x")
    assert may(book, token) == []


def test_the_last_revoked_token_does_not_open_the_doors(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.create("x", ["ingest"])
    file.revoke("x")
    assert not tokens(tmp_path).header_allows("", "ingest")


def test_names_are_unique_and_what_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.create("x", ["ingest"])
    with pytest.raises(ConfigError, match="already"):
        file.create("x", ["read"])
    with pytest.raises(ConfigError, match="letters"):
        file.create("a b", ["read"])
    with pytest.raises(NotFound):
        file.revoke("y")


def test_a_file_that_is_not_ours_keeps_the_doors_shut(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text("{}")
    assert not tokens(tmp_path).header_allows("", "ingest")
    (tmp_path / "tokens.json").write_text("nonsense")
    with pytest.raises(ConfigError, match="no file of tokens"):
        tokens(tmp_path)
