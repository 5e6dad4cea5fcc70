"""The client's settings: name, environment variable, type, default and meaning, said once.

Read with a dataclass and os.environ, because nothing heavier may be imported into a user's service. A value that cannot
work is replaced by the default with a warning: a bad setting never stops the application.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import unquote

log = logging.getLogger("tailtrace")

_MILLISECONDS_FROM = 100.0
# The last two are what newer conventions write for content of messages; we have spans and no events.
_TRUE = frozenset({"1", "true", "yes", "on", "span_only", "span_and_event"})


def _setting(default: Any, env: tuple[str, ...], text: str) -> Any:
    metadata = {"env": env, "text": text}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(slots=True)
class Settings:
    """What `instrument()` takes; each field is also read from the first of its environment variables that is set."""

    service_name: str = _setting("", ("OTEL_SERVICE_NAME",), "name of this service")
    service_version: str = _setting("", ("TAILTRACE_SERVICE_VERSION",), "version of this service; marks deploys")
    role: str = _setting("", ("TAILTRACE_ROLE",), "gateway, api_server, tokenizer, scheduler, worker or client")
    endpoint: str = _setting(
        "http://127.0.0.1:4318", ("OTEL_EXPORTER_OTLP_ENDPOINT",), "OTLP receiver; /v1/traces is added to it"
    )
    traces_endpoint: str = _setting(
        "", ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",), "full address for spans, used as it is; wins over `endpoint`"
    )
    metrics_endpoint: str = _setting(
        "", ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",), "full address for counters, used as it is; wins over `endpoint`"
    )
    protocol: str = _setting(
        "http/protobuf",
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"),
        "http/protobuf, or grpc where grpcio is installed",
    )
    headers: dict[str, str] = _setting(  # noqa: RUF009
        dict,
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"),
        "headers sent with each batch (key=value, comma separated, percent-encoded)",
    )
    token: str = _setting("", ("TAILTRACE_TOKEN",), "sent as `Authorization: Bearer`")
    compression: str = _setting(
        "none", ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"), "none or gzip"
    )
    timeout_s: float = _setting(
        10.0,
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"),
        "limit of one attempt in seconds; the specification's milliseconds are understood from 100 up",
    )
    retry_for_s: float = _setting(
        300.0, ("TAILTRACE_RETRY_FOR_S",), "a batch is given up this long after its first try"
    )
    interval_s: float = _setting(0.5, ("TAILTRACE_INTERVAL_S",), "seconds between batches")
    buffer_spans: int = _setting(65_536, ("TAILTRACE_BUFFER_SPANS",), "spans kept while the receiver is away")
    buffer_bytes: int = _setting(32 << 20, ("TAILTRACE_BUFFER_BYTES",), "bytes kept while the receiver is away")
    shutdown_s: float = _setting(5.0, ("TAILTRACE_SHUTDOWN_S",), "longest that leaving the process may take")
    sample: int = _setting(1, ("TAILTRACE_SAMPLE",), "record one request in N, chosen by trace id")
    region_header: str = _setting(
        "",
        ("TAILTRACE_REGION_HEADER",),
        "request header with the client's region (cf-ipcountry), sent as client.region",
    )
    capture_content: bool = _setting(
        False,
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",),
        "record prompts and outputs (true, span_only or span_and_event)",
    )
    content_chars: int = _setting(
        4096, ("TAILTRACE_CONTENT_CHARS",), "characters kept of a request's prompts, and of its outputs, newest first"
    )
    redact: Any = _setting(  # noqa: RUF009
        "", ("TAILTRACE_REDACT",), "hook that each recorded text passes: a function, or `module:function`"
    )
    watch_loop: bool = _setting(
        True, ("TAILTRACE_WATCH_LOOP",), "measure how late the event loop of a wrapped gateway is, and why"
    )
    find_gpus: bool = _setting(
        True, ("TAILTRACE_FIND_GPUS",), "name the GPUs that this process sees, where it uses CUDA and NVML can be read"
    )
    resource: dict[str, Any] = _setting(  # noqa: RUF009
        dict, ("OTEL_RESOURCE_ATTRIBUTES",), "further attributes of this process"
    )
    disabled: bool = _setting(False, ("OTEL_SDK_DISABLED",), "true: nothing is recorded or sent")


def read_settings(environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings from arguments (those that are not None), then the environment, then defaults.

    `headers` and `resource` are merged, arguments over environment. Raises TypeError for an unknown argument, which is
    a mistake in the program and not in its surroundings.
    """
    env = os.environ if environ is None else environ
    settings = Settings()
    unknown = given.keys() - {item.name for item in fields(Settings)}
    if unknown:
        raise TypeError(f"instrument() has no setting {', '.join(sorted(unknown))}")
    for item in fields(Settings):
        default = getattr(settings, item.name)
        text = next((env[name] for name in item.metadata["env"] if env.get(name, "").strip()), None)
        value = default if text is None else _read(item.name, text.strip(), default)
        argument = given.get(item.name)
        if argument is not None:
            value = {**value, **argument} if isinstance(default, dict) else _as(item.name, argument, default)
        setattr(settings, item.name, value)
    if settings.token and not any(name.lower() == "authorization" for name in settings.headers):
        settings.headers["authorization"] = f"Bearer {settings.token}"
    for own in ("traces_endpoint", "metrics_endpoint"):
        if given.get("endpoint") is not None and given.get(own) is None:
            # What the program says wins over what its surroundings say, also across these two.
            setattr(settings, own, "")
    _sampler(settings, env)
    return settings


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, dict):
        return parse_pairs(text)
    if isinstance(default, bool):
        return text.lower() in _TRUE
    return _as(name, text, default)


def _as(name: str, value: Any, default: Any) -> Any:
    """`value` in the type of `default`; the default, with a warning, where that is impossible or negative."""
    try:
        if isinstance(default, bool):
            return bool(value)
        if isinstance(default, int):
            number: float = int(value)
        elif isinstance(default, float):
            number = float(value)
        else:
            return value if callable(value) else str(value)
        if not 0 <= number < float("inf"):
            raise ValueError("out of range")
    except (TypeError, ValueError):
        log.warning("tailtrace: setting %s: expected a number, got %r; using %r", name, value, default)
        return default
    return number / 1000 if name == "timeout_s" and number >= _MILLISECONDS_FROM else number


def parse_pairs(text: str) -> dict[str, str]:
    """`a=1,b=%20` as OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPORTER_OTLP_HEADERS write it; others are left out."""
    pairs = {}
    for piece in text.split(","):
        name, equals, value = piece.partition("=")
        if equals and name.strip():
            pairs[unquote(name.strip())] = unquote(value.strip())
    return pairs


def _sampler(settings: Settings, env: Mapping[str, str]) -> None:
    """OTEL_TRACES_SAMPLER, where our own setting leaves every request in."""
    sampler = env.get("OTEL_TRACES_SAMPLER", "").lower()
    if settings.sample == 1 and sampler.endswith("traceidratio"):
        try:
            ratio = float(env.get("OTEL_TRACES_SAMPLER_ARG", "1"))
        except ValueError:
            ratio = 1.0
        settings.sample = round(1 / ratio) if 0 < ratio <= 1 else 0
    elif sampler.endswith("always_off"):
        settings.sample = 0
