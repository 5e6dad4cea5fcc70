"""The command line as a whole: help, exit codes, what is imported, what is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from typer.main import get_command

from tailtrace.cli import exit_code
from tailtrace.cli.app import app
from tailtrace.errors import ConfigError, MissingExtra, NotFound, StoreLocked, TailtraceError
from tailtrace.version import VERSION

Run = Callable[..., Any]
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_commands() -> None:
    parts = ["beat", "dashboard", "drain", "ingest", "worker"]
    reads = ["attribution", "compare", "explain", "requests", "slow", "sql", "tokens", "whatif", "why", "replicas"]
    fleet = ["batch-curve", "gpu-idle", "root-cause"]
    watch = ["alerts", "gate"]
    rest = ["backup", "demo", "doctor", "export", "lab", "load", "restore", "schema", "token", "up"]
    assert sorted([*parts, *reads, *fleet, *watch, *rest]) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_has_help(tailtrace: Run, command: str) -> None:
    shown = tailtrace(command, "--help")
    assert shown.code == 0
    described = get_command(app).commands[command]  # type: ignore[attr-defined]
    assert described.help
    for parameter in described.params:
        assert parameter.help, f"{command} {parameter.name}"
        named = parameter.opts[-1] if parameter.param_type_name == "option" else parameter.name
        assert named in shown.out


def test_help_and_version(tailtrace: Run) -> None:
    assert all(command in tailtrace("--help").out for command in COMMANDS)
    assert tailtrace("--version").out == f"tailtrace {VERSION}\n"


def test_an_unknown_command_is_a_usage_error(tailtrace: Run) -> None:
    outcome = tailtrace("frobnicate")
    assert outcome.code == 2
    assert "frobnicate" in outcome.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TailtraceError("x"), 1),
        (ConfigError("x"), 2),
        (MissingExtra("x", "server"), 2),
        (StoreLocked("x"), 3),
        (NotFound("x"), 4),
    ],
)
def test_exit_codes(error: TailtraceError, code: int) -> None:
    assert exit_code(error) == code


def without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in an installation that lacks a package."""
    script = f"import sys; sys.modules[{package!r}] = None; from tailtrace.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("package", "arguments"),
    [("typer", ["up"]), ("httpx", ["requests"]), ("pydantic", ["up"]), ("rich", ["explain", "0"])],
)
def test_a_missing_extra_names_the_pip_command(package: str, arguments: list[str]) -> None:
    outcome = without(package, *arguments)
    assert outcome.returncode == 2
    assert outcome.stderr == (
        f"tailtrace: `tailtrace {arguments[0]}` needs packages that are not installed: "
        "pip install 'tailtrace[server]'\n"
    )


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom tailtrace.cli.app import run\nrun(['--help'])\n"
        "heavy = {'chdb', 'dash', 'celery', 'pyarrow', 'numpy', 'pydantic', 'grpc', 'fastapi'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)


def test_schema_prints_every_table(tailtrace: Run) -> None:
    printed = tailtrace("schema").out
    for table in ("otel_traces", "requests", "rollup_1m", "watermarks"):
        assert f"CREATE TABLE {table}" in printed
