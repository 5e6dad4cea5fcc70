"""Server settings from flags, environment and a TOML file, in that order of precedence."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtrace.cli.processes.ports import is_loopback
from tailtrace.errors import ConfigError

if TYPE_CHECKING:
    from tailtrace.ingest.settings import ServerSettings


def load_settings(flags: Mapping[str, Any], config: Path | None = None) -> ServerSettings:
    """The settings; flags that are None were not given. Raises ConfigError in words for any that cannot work."""
    import os

    from pydantic import ValidationError

    from tailtrace.ingest.settings import ServerSettings

    values = _read_toml(config, set(ServerSettings.model_fields))
    # What the environment says stands above the file: leave those to pydantic-settings.
    environment = {name.lower() for name in os.environ}
    values = {name: value for name, value in values.items() if f"tailtrace_{name}" not in environment}
    values |= {name: value for name, value in flags.items() if value is not None}
    try:
        settings = ServerSettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        given = "" if not first["loc"] else f" (got {first['input']!r})"
        raise ConfigError(f"{_option(name)}: {first['msg']}{given}") from None
    _check_exposure(settings)
    return settings


def _check_exposure(settings: ServerSettings) -> None:
    from tailtrace.ingest.tokens import tokens_file

    guarded = bool(settings.token) or tokens_file(settings).exists()
    if not is_loopback(settings.host) and not guarded and not settings.insecure:
        raise ConfigError(
            f"--host {settings.host} lets other machines in: give a --token (or TAILTRACE_TOKEN) that they must "
            "present, or --insecure if the network itself is trusted"
        )


def _read_toml(config: Path | None, known: set[str]) -> dict[str, Any]:
    if config is None:
        return {}
    try:
        values = tomllib.loads(config.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {config}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {config}: not TOML ({error})") from None
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known))}"
            raise ConfigError(f"--config {config}: unknown setting {name}{hint}")
    return values


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
