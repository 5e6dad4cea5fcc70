"""The other two ways in: vLLM's plugins and OpenTelemetry's auto-instrumentation."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tailtrace.instrumentation.run import importhook, targets

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that are waited for from here on."""
    names: list[str] = []

    def when_imported(name: str, function: Any) -> None:
        assert function is targets.installed
        names.append(name)

    monkeypatch.setattr(importhook, "when_imported", when_imported)
    monkeypatch.setattr("tailtrace.instrumentation.run.instrumentor.when_imported", when_imported)
    for name in ("TAILTRACE_RUN", "TAILTRACE_VLLM", "VLLM_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    return names


def entry_point(group: str) -> Any:
    """What the project declares; how an installation lists it is the packaging tools' affair."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"][group]["tailtrace"].partition(":")
    return getattr(importlib.import_module(module), name)


def test_installed_beside_vllm_is_not_a_wish_to_record(watched: list[str]) -> None:
    entry_point("vllm.general_plugins")()
    assert watched == []


@pytest.mark.parametrize(("name", "value"), [("TAILTRACE_VLLM", "1"), ("VLLM_PLUGINS", "other,tailtrace")])
def test_asked_for_it_waits_for_vllms_modules(
    watched: list[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    entry_point("vllm.general_plugins")()
    assert watched == list(targets.TARGETS)


def test_opentelemetry_instrument_loads_the_same_hooks(watched: list[str]) -> None:
    instrumentor = entry_point("opentelemetry_instrumentor")()
    assert instrumentor.instrumentation_dependencies() == ()
    instrumentor.instrument()
    assert watched == list(targets.TARGETS)


def test_a_hook_that_fails_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    class Module:
        __name__ = "uvicorn.config"

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("strange module")

    targets.installed(Module())
    assert "uvicorn.config is not hooked" in caplog.text
