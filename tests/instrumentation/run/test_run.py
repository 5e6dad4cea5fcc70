"""`tailtrace run`: the command it becomes, and the processes that one starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailtrace.errors import ConfigError
from tailtrace.instrumentation.run.command import environment, run

WRAPPED = """
import uvicorn
async def app(scope, receive, send): ...
config = uvicorn.Config(app, lifespan="off")
config.load()
app = getattr(config.loaded_app, "app", config.loaded_app)
print(type(app).__name__, flush=True)
"""


def tailtrace(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "TAILTRACE_SHUTDOWN_S": "0.2"}
    env.pop("PYTHONPATH", None)
    return subprocess.run(
        [sys.executable, "-c", "from tailtrace.cli import main; main()", "run", *arguments],
        text=True, capture_output=True, timeout=60, env={**env, **options.pop("env", {})}, **options,
    )  # fmt: skip


def test_exit_code_and_output_are_the_commands_own() -> None:
    done = tailtrace("--", sys.executable, "-c", "print('out'); raise SystemExit(7)")
    assert (done.returncode, done.stdout) == (7, "out\n")


def test_it_becomes_the_command_so_that_signals_reach_it() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert tailtrace("--", sys.executable, "-c", code).returncode == -signal.SIGTERM


def test_an_app_is_wrapped_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(WRAPPED)
    done = tailtrace("--service", "shop", "--", sys.executable, str(tmp_path / "serve.py"))
    assert done.stdout == "Gateway\n"
    assert "tailtrace: recording shop (gateway, pid" in done.stderr
    assert "hooked: uvicorn (2)" in done.stderr


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_children_are_reached(tmp_path: Path, method: str) -> None:
    (tmp_path / "serve.py").write_text(
        "import multiprocessing, runpy\n"
        "def child():\n    runpy.run_path('wrapped.py')\n"
        "if __name__ == '__main__':\n"
        f"    process = multiprocessing.get_context('{method}').Process(target=child)\n"
        "    process.start(); process.join(); raise SystemExit(process.exitcode)\n"
    )
    (tmp_path / "wrapped.py").write_text(WRAPPED)
    done = tailtrace("--", sys.executable, "serve.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Gateway\n")


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'ran'\n")
    code = "import sitecustomize; print(theirs, sitecustomize.__file__)"
    done = tailtrace("--", sys.executable, "-c", code, env={"PYTHONPATH": str(tmp_path)})
    assert done.stdout == f"ran {tmp_path / 'sitecustomize.py'}\n"


def test_nothing_heavy_is_imported_before_a_target_is() -> None:
    code = "import sys; print([name for name in sys.modules if name.startswith(('opentelemetry', 'tailtrace'))])"
    done = tailtrace("--", sys.executable, "-c", code)
    assert done.stdout == "['tailtrace.instrumentation.run.importhook']\n"


def test_check_says_what_would_be_hooked_and_runs_nothing(tmp_path: Path) -> None:
    done = tailtrace("--check", "--", sys.executable, "-c", "open('ran', 'w')", cwd=tmp_path)
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if not line.startswith(" ")}
    assert "Config.load, HttpToolsProtocol.on_message_begin" in lines["uvicorn"]
    assert lines["python"].split()[1] == sys.executable
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 0


def test_check_of_what_is_not_python_says_so() -> None:
    done = tailtrace("--check", "--", "true")
    assert done.returncode == 1
    assert "is not a Python script" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected a command"),
        (("--wrong", "--", "true"), "no option --wrong"),
        (("--service",), "--service expects a value"),
        (("--", "no-such-command-anywhere"), "command not found"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(arguments)


def test_run_twice_is_run_once() -> None:
    once = environment({"PYTHONPATH": "/theirs"})
    assert environment(once) == once
    assert once["PYTHONPATH"].split(os.pathsep)[1:] == ["/theirs"]
