"""Who may do what: bearer tokens with scopes, kept as hashes in a file that is read again when it changes.

A token is 32 random bytes, so a plain SHA-256 is as good as any slow hash. The file holds no secret that opens a door:
neither the token nor the value of a browser's session cookie, only hashes of both.
"""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from tailtrace.errors import ConfigError, NotFound
from tailtrace.ingest.settings import ServerSettings

log = logging.getLogger(__name__)

Scope = Literal["ingest", "read", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("ingest", "read", "admin")
"""`ingest`: send telemetry. `read`: pages, API, ClickHouse HTTP. `admin`: everything."""

_LOOK_S: Final = 1.0
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Entry:
    """One token as the file knows it. `token` and `session` are SHA-256 in hex."""

    name: str
    scopes: tuple[Scope, ...]
    token: str
    session: str
    created: str


def session_value(token: str) -> str:
    """What a browser's cookie holds: proof of the token, not the token."""
    return hmac.new(token.encode(), b"tailtrace browser session", hashlib.sha256).hexdigest()


def tokens_file(settings: ServerSettings) -> Path:
    """Where the tokens of these settings are kept."""
    return settings.tokens_file or settings.data / "tokens.json"


class TokenFile:
    """The file and its changes. Writers take turns; readers see a whole file, old or new."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """All tokens; ConfigError for a file that is not ours."""
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return []
        try:
            return [Entry(**{**row, "scopes": tuple(row["scopes"])}) for row in json.loads(text)]
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"{self.path} is no file of tokens ({error}): restore it, or remove it to start anew"
            ) from None

    def create(self, name: str, scopes: Sequence[Scope]) -> str:
        """Add a token and give its text, which is not kept. ConfigError for a name that is taken or unusable."""
        if not _NAME.match(name):
            raise ConfigError(f"a token's name is up to 64 letters, digits, dots and dashes, got {name!r}")
        token = f"tt_{secrets.token_urlsafe(32)}"
        with self._changing() as entries:
            if name in entries:
                raise ConfigError(f"there is a token {name!r} already: revoke it first, or choose another name")
            created = datetime.now(UTC).isoformat(timespec="seconds")
            entries[name] = Entry(name, tuple(scopes), _digest(token), _digest(session_value(token)), created)
        return token

    def revoke(self, name: str) -> None:
        """Remove a token; doors refuse it within a second. NotFound when there is none of that name."""
        with self._changing() as entries:
            if entries.pop(name, None) is None:
                raise NotFound(f"there is no token {name!r} in {self.path}")

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Entry]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = {entry.name: entry for entry in self.entries()}
            yield entries
            fresh = self.path.with_suffix(".new")
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as out:
                json.dump([asdict(entry) for entry in entries.values()], out, indent=1)
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(self.path)
        finally:
            os.close(lock)


class Tokens:
    """What the doors ask. The token of the settings may do everything; those of the file what their scopes say.

    Where neither is there, everybody may do everything. A file that exists asks for a token also once it is empty.
    """

    def __init__(self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = TokenFile(tokens_file(settings))
        self._clock = clock
        self._lock = threading.Lock()
        self._own = _entry_of(settings.token) if settings.token else None
        self._looked_at = float("-inf")
        self._stamp: tuple[int, int] | None = None
        self._entries: tuple[Entry, ...] = ()
        self._look()

    def required(self) -> bool:
        """Whether a token is asked for at all."""
        self._look()
        return self._own is not None or self._stamp is not None

    def allows(self, token: str, scope: Scope) -> bool:
        """Whether this token may do that. Takes as long for a wrong one as for a right one."""
        return self._allows(token, scope, lambda entry: entry.token)

    def session_allows(self, cookie: str, scope: Scope) -> bool:
        """The same for the value of a browser's session cookie."""
        return self._allows(cookie, scope, lambda entry: entry.session)

    def header_allows(self, authorization: str, scope: Scope) -> bool:
        """The same for an `Authorization: Bearer TOKEN` header."""
        if not self.required():
            return True
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() == "bearer" and self.allows(token.strip(), scope)

    def _allows(self, secret: str, scope: Scope, kept: Callable[[Entry], str]) -> bool:
        if not self.required():
            return True
        given = _digest(secret)
        entries = self._entries if self._own is None else (self._own, *self._entries)
        allowed = False
        for entry in entries:
            same = hmac.compare_digest(given, kept(entry))
            allowed |= same and (scope in entry.scopes or "admin" in entry.scopes)
        return allowed

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < _LOOK_S:
            return
        with self._lock:
            self._looked_at = now
            try:
                status = self._file.path.stat()
            except FileNotFoundError:
                self._stamp, self._entries = None, ()
                return
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp == self._stamp:
                return
            try:
                self._entries = tuple(self._file.entries())
            except ConfigError as error:
                if self._stamp is None:
                    raise
                log.error("tokens stay as they were: %s", error)
            self._stamp = stamp


def _entry_of(token: str) -> Entry:
    return Entry("TAILTRACE_TOKEN", ("admin",), _digest(token), _digest(session_value(token)), "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def described(entry: Entry) -> Mapping[str, str]:
    """What may be shown of a token."""
    return {"name": entry.name, "scopes": ",".join(entry.scopes), "created": entry.created}
