"""Settings from arguments, environment and defaults; the resource; endpoints; starting twice or not at all."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from tailtrace.errors import ConfigError
from tailtrace.instrumentation import instrument, runtime, shutdown
from tailtrace.instrumentation.resource import build_resource
from tailtrace.instrumentation.settings import Settings, read_settings
from tailtrace.instrumentation.transport import open_transport, traces_address


def test_arguments_win_over_environment_over_defaults() -> None:
    env = {"OTEL_SERVICE_NAME": "env", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:1", "TAILTRACE_SAMPLE": "5"}
    assert read_settings({}).endpoint == "http://127.0.0.1:4318"
    assert read_settings(env).service_name == "env"
    given = read_settings(env, service_name="arg")
    assert (given.service_name, given.endpoint, given.sample) == ("arg", "http://e:1", 5)


@pytest.mark.parametrize(
    ("env", "address"),
    [
        ({}, "http://127.0.0.1:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/base"}, "http://c:4318/base/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4318"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/own"}, "https://c/own"),
    ],
)
def test_forms_of_the_endpoint(env: dict[str, str], address: str) -> None:
    assert traces_address(read_settings(env)) == address


@pytest.mark.parametrize("endpoint", ["ftp://x", "http://", "http://h:port"])
def test_an_endpoint_that_cannot_work_is_named(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="endpoint"):
        open_transport(Settings(endpoint=endpoint))


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10.0), ("10000", 10.0), ("2500", 2.5), ("nonsense", 10.0), ("-1", 10.0)]
)
def test_timeouts_in_seconds_and_in_the_specification_s_milliseconds(text: str, seconds: float) -> None:
    assert read_settings({"OTEL_EXPORTER_OTLP_TIMEOUT": text}).timeout_s == seconds


def test_headers_and_resource_are_merged_and_decoded() -> None:
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "a=1,b=x%20y", "OTEL_RESOURCE_ATTRIBUTES": "team=ml", "TAILTRACE_TOKEN": "s"}
    settings = read_settings(env, headers={"a": "2"}, resource={"model": "m"})
    assert settings.headers == {"a": "2", "b": "x y", "authorization": "Bearer s"}
    resource = build_resource(settings)
    assert (resource["team"], resource["tailtrace.model"]) == ("ml", "m")


@pytest.mark.parametrize(
    ("sampler", "argument", "one_in"),
    [("parentbased_traceidratio", "0.1", 10), ("always_on", "", 1), ("always_off", "", 0), ("traceidratio", "0", 0)],
)
def test_the_standard_sampler_is_honoured(sampler: str, argument: str, one_in: int) -> None:
    env = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    assert read_settings(env).sample == one_in


def test_each_resource_has_its_own_instance_id() -> None:
    settings = Settings(service_name="s", role="scheduler", resource={"service.instance.id": "shared"})
    first, second = build_resource(settings), build_resource(settings)
    assert first["service.instance.id"] != second["service.instance.id"]
    assert "shared" not in {first["service.instance.id"], second["service.instance.id"]}
    assert first["process.pid"] == os.getpid()
    assert first["tailtrace.engine_id"] == f"{first['host.id']}/{os.getpid()}/0"


def test_a_second_call_warns_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    try:
        instrument("first", endpoint="http://127.0.0.1:9")
        running = runtime.active
        with caplog.at_level(logging.WARNING):
            instrument("second", endpoint="http://127.0.0.1:9")
        assert runtime.active is running
        assert "second time" in caplog.text
    finally:
        shutdown(0.1)


def test_disabled_by_the_standard_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    instrument("s")
    assert runtime.active is None


def test_a_bad_endpoint_never_stops_the_application(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        instrument("s", endpoint="ftp://x")
    assert runtime.active is None
    assert "not started" in caplog.text


def test_an_unknown_argument_is_a_mistake_in_the_program() -> None:
    with pytest.raises(TypeError, match="endpont"):
        instrument("s", endpont="x")  # type: ignore[arg-type]


def test_importing_it_brings_in_nothing_heavy() -> None:
    heavy = [
        "chdb", "pandas", "dash", "celery", "pyarrow", "pydantic", "typer", "numpy", "grpc", "requests", "httpx",
        "fastapi", "starlette", "opentelemetry.sdk", "asyncio", "http.client",
    ]  # fmt: skip
    code = f"import tailtrace.instrumentation, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
