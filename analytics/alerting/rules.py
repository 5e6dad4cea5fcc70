"""What is watched, and who is told: one model for the TOML file and the API."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from tailtrace.errors import ConfigError, Rejected

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[\w .:-]+$")]
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)")
_UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


def span_ns(text: str) -> int:
    """`800ms`, `1.5s`, `10m`, `6h` in nanoseconds. Raises ValueError with what is accepted."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"a time is a number and a unit (ns, us, ms, s, m, h, d), like 800ms or 1.5s; got {text[:40]!r}"
        )
    return round(float(match[1]) * _UNITS[match[2]])


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Rule(_Strict):
    """What every rule has. `service` and `model`: empty means all."""

    name: Name
    service: str = Field("", max_length=200)
    model: str = Field("", max_length=200)
    channels: tuple[Name, ...] = ()
    enabled: bool = True


class RegressionRule(_Rule):
    """A confirmed change of one of `metrics`; those below `at_least` (0.1 = 10 %) are not sent. Without metrics those
    of the service's goal: duration, TTFT and TPOT of an online one, duration of an offline one.
    """

    kind: Literal["regression"] = "regression"
    metrics: tuple[Literal["duration", "ttft", "tpot"], ...] = ()
    at_least: float = Field(0.0, ge=0, le=100)


class ThresholdRule(_Rule):
    """A percentile of the last `window` above a limit for as long as `hold`; over when it was below `clear` as long.

    Windows of fewer than `min_n` requests (10 / (1 - q) unless given) say nothing.
    """

    kind: Literal["threshold"]
    metric: Literal["duration", "ttft", "tpot"]
    q: float = Field(0.99, gt=0, lt=1)
    above: str
    clear: str = ""
    window: str = "5m"
    hold: str = "5m"
    min_n: int = Field(0, ge=0)

    @field_validator("above", "window", "hold")
    @classmethod
    def _is_span(cls, text: str) -> str:
        span_ns(text)
        return text

    @model_validator(mode="after")
    def _limits_agree(self) -> ThresholdRule:
        if self.clear and span_ns(self.clear) > span_ns(self.above):
            raise ValueError(f"clear ({self.clear}) is above the limit ({self.above})")
        if not 60 * 10**9 <= span_ns(self.window) <= 6 * 3600 * 10**9:
            raise ValueError(f"window is 1m to 6h; got {self.window}")
        if not 0 <= span_ns(self.hold) <= 6 * 3600 * 10**9:
            raise ValueError(f"hold is 0s to 6h; got {self.hold}")
        return self

    @property
    def fewest(self) -> int:
        return self.min_n or -int(-10 // (1 - self.q))

    @property
    def clear_ns(self) -> int:
        return span_ns(self.clear) if self.clear else round(0.9 * span_ns(self.above))


class SloRule(_Rule):
    """A share `objective` of requests is good: fast enough (`within`; per_token: duration / output tokens), answered
    (availability), all of TTFT, TPOT and outcome (goodput, with `ttft_within` and `tpot_within`), or ended in a minute
    in which the service made `tokens_per_s`. Tells when the error budget of 30 days burns too fast.
    """

    kind: Literal["slo"]
    sli: Literal["duration", "ttft", "tpot", "availability", "goodput", "per_token", "tokens_per_s"]
    objective: float = Field(gt=0.5, lt=1)
    within: str = ""
    ttft_within: str = ""
    tpot_within: str = ""
    tokens_per_s: float = Field(0.0, ge=0)
    min_n: int = Field(100, ge=1)

    @model_validator(mode="after")
    def _has_limits(self) -> SloRule:
        if self.sli in ("duration", "ttft", "tpot", "per_token") and not self.within:
            raise ValueError(f'an objective on {self.sli} needs `within`, like within = "2s"')
        if self.sli == "goodput" and not (self.ttft_within or self.tpot_within):
            raise ValueError("goodput needs ttft_within, tpot_within or both")
        if self.sli == "tokens_per_s" and not self.tokens_per_s:
            raise ValueError("an objective on tokens_per_s needs the least of them, like tokens_per_s = 2000")
        for text in filter(None, (self.within, self.ttft_within, self.tpot_within)):
            span_ns(text)
        return self


class SilenceRule(_Rule):
    """A service without traffic while others have some, no telemetry at all, or telemetry with more than `lost` of its
    spans missing.
    """

    kind: Literal["silence"]
    after: str = "15m"
    lost: float = Field(0.05, gt=0, lt=1)

    @field_validator("after")
    @classmethod
    def _is_span(cls, text: str) -> str:
        span_ns(text)
        return text


Rule = Annotated[RegressionRule | ThresholdRule | SloRule | SilenceRule, Field(discriminator="kind")]
_RULE: Final[TypeAdapter[Any]] = TypeAdapter(Rule)


class Channel(_Strict):
    """Where messages go: an apprise URL (slack://, mailto://, pagerduty:// ...), or a signed JSON webhook.

    `secret` signs; `secret_env` names an environment variable that holds it, `url_env` one that holds the address.
    """

    name: Name
    kind: Literal["webhook", "apprise"] = "webhook"
    url: str = Field("", max_length=2000, repr=False)
    url_env: str = Field("", max_length=100)
    secret: str = Field("", max_length=500, repr=False)
    secret_env: str = Field("", max_length=100)

    @model_validator(mode="after")
    def _has_address(self) -> Channel:
        if bool(self.url) == bool(self.url_env):
            raise ValueError("a channel has a url, or a url_env that names the variable it is in")
        if self.url and self.kind == "webhook" and not self.url.startswith(("http://", "https://")):
            raise ValueError('a webhook\'s url begins with http:// or https://; other services are kind = "apprise"')
        return self

    @property
    def address(self) -> str:
        return self.url or os.environ.get(self.url_env, "")

    @property
    def key(self) -> str:
        return self.secret or (os.environ.get(self.secret_env, "") if self.secret_env else "")

    def shown(self) -> dict[str, Any]:
        """What answers may hold: an address may carry a token anywhere behind its scheme."""
        scheme, _, rest = self.address.partition("://")
        host = rest.partition("/")[0].rpartition("@")[2] if self.kind == "webhook" else ""
        return {"name": self.name, "kind": self.kind, "url": f"{scheme}://{host}...", "signed": bool(self.key)}


def redefined(body: Mapping[str, Any], old: Channel | None) -> dict[str, Any]:
    """A channel's new fields; address and secret that are not given again stay as they were, for they are never shown
    and so cannot be repeated.
    """
    made = dict(body)
    if old is not None and old.kind == made.get("kind", "webhook"):
        for pair in (("url", "url_env"), ("secret", "secret_env")):
            if not any(name in made for name in pair):
                made |= {name: getattr(old, name) for name in pair if getattr(old, name)}
    return made


DEFAULT_RULE: Final = RegressionRule(name="regressions")


def parse_rule(body: Mapping[str, Any]) -> Any:
    """A rule from JSON or TOML. Raises Rejected with the field and what is wrong with it."""
    return _checked(lambda: _RULE.validate_python({"kind": "regression", **body}), "rule", body)


def parse_channel(body: Mapping[str, Any]) -> Channel:
    """A channel from JSON or TOML. Raises Rejected with the field and what is wrong with it."""
    made: Channel = _checked(lambda: Channel.model_validate(body), "channel", body)
    return made


def _checked(make: Any, what: str, body: Mapping[str, Any]) -> Any:
    try:
        return make()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(
            str(part) for part in first["loc"] if part not in ("regression", "threshold", "slo", "silence")
        )
        message = str(first["msg"]).removeprefix("Value error, ")
        name = str(body.get("name", ""))[:100]
        raise Rejected(f"{what} {name!r}{': ' + where if where else ''}: {message}") from None


def load_file(path: Path) -> tuple[list[Any], list[Channel]]:
    """Rules and channels of a TOML file ([[rule]], [[channel]]). Raises ConfigError that names the file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        unknown = set(table) - {"rule", "channel"}
        if unknown:
            raise Rejected(f"expected [[rule]] and [[channel]]; got {', '.join(sorted(unknown))}")
        return [parse_rule(each) for each in table.get("rule", [])], [
            parse_channel(each) for each in table.get("channel", [])
        ]
    except OSError as error:
        raise ConfigError(f"rules file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, Rejected) as error:
        raise ConfigError(f"rules file {path.name}: {error}") from None
