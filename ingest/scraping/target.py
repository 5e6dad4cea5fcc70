"""What is scraped: `NAME=URL[,INTERVAL]`, several separated by blanks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from tailtrace.errors import ConfigError

DEFAULT_INTERVAL_S: Final = 10.0
SHORTEST_INTERVAL_S: Final = 1.0
LONGEST_INTERVAL_S: Final = 3600.0
MOST_TARGETS: Final = 64
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Target:
    """One page of metrics. `name` becomes the service's name, `instance` (host:port) its instance."""

    name: str
    url: str
    interval_s: float = DEFAULT_INTERVAL_S

    @property
    def instance(self) -> str:
        """Host and port, without what else the address may hold."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


def parse_targets(text: str) -> list[Target]:
    """All targets of a setting, in order. Raises ConfigError that says what was expected."""
    targets = [_parse(piece) for piece in text.split()]
    if len(targets) > MOST_TARGETS:
        raise ConfigError(f"scrape: at most {MOST_TARGETS} targets, got {len(targets)}")
    seen: set[tuple[str, str]] = set()
    for target in targets:
        if (target.name, target.url) in seen:
            raise ConfigError(f"scrape: {target.name}={target.url} is given twice")
        seen.add((target.name, target.url))
    return targets


def _parse(text: str) -> Target:
    name, equals, rest = text.partition("=")
    url, comma, interval = rest.rpartition(",")
    if not comma or "/" in interval:
        url, interval = rest, ""
    parts = urlsplit(url)
    if not (name and equals and parts.scheme in ("http", "https") and parts.hostname):
        raise ConfigError(f"scrape: expected NAME=http://HOST:PORT/PATH[,INTERVAL], got {text!r}")
    if parts.path in ("", "/") and not parts.query:
        url = url.rstrip("/") + "/metrics"
    return Target(name, url, _seconds(interval, text) if interval else DEFAULT_INTERVAL_S)


def _seconds(interval: str, text: str) -> float:
    number = interval.rstrip("ms")
    try:
        seconds = float(number) * _UNITS[interval[len(number) :] or "s"]
    except (ValueError, KeyError):
        raise ConfigError(f"scrape: expected an interval like 10s or 500ms, got {interval!r} in {text!r}") from None
    if not SHORTEST_INTERVAL_S <= seconds <= LONGEST_INTERVAL_S:
        raise ConfigError(f"scrape: an interval is 1 s to 1 h, got {interval!r} in {text!r}")
    return seconds
