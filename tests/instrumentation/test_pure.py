"""The recorder in Python: chosen by TAILTRACE_PURE, passes the same tests, and is what a failed build leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

# The tests of every piece that exists twice.
CONTRACT = (
    "test_gateway.py", "test_token_times.py", "test_streams.py", "test_wrappers.py", "test_exporter.py",
    "test_loop_probe.py", "test_wire.py", "engines/test_vllm_golden.py",
)  # fmt: skip


def python(*arguments: str, pure: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TAILTRACE_PURE": pure}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_tests_of_both_twins_pass_in_python() -> None:
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = python(*options, *(str(HERE / name) for name in CONTRACT), pure="1")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout or "100%" in done.stdout


def test_the_setting_chooses() -> None:
    told = "from tailtrace.instrumentation.native import in_words, native; print(native, in_words())"
    done = python("-c", told, pure="1")
    assert done.stdout.startswith("None in Python"), done.stderr
    done = python("-c", told, pure="")
    assert "in C" in done.stdout or "in Python" in done.stdout


def test_a_failed_build_of_the_extension_is_no_failed_build(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "setup.py", "-q", "build_ext", f"--build-temp={tmp_path}", f"--build-lib={tmp_path}",
            "--force",
        ],
        cwd=ROOT, env={**os.environ, "CC": "/bin/false"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*.so"))
