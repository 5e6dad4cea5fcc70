"""The script for real GPU machines, on the stub: it must run to its end there, unattended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "gpu_check.py"


def run(library: Path, state: str) -> subprocess.CompletedProcess[str]:
    file = library.parent / "gpu-check-state"
    file.write_text(state)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "NVML_STUB_STATE": str(file)}
    command = [sys.executable, str(SCRIPT), "--only-me", "--idle", "--seconds", "2"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("arch", [9, 7])
def test_it_prints_what_the_page_keeps(library: Path, arch: int) -> None:
    ended = run(library, f"gpus 2\narch {arch}\n")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for heading in (
        "driver     580.65.06",
        "== idle, this user",
        "fields: type",
        "calls: median",
        "by GPM",
        "absent\n",
    ):
        assert heading in ended.stdout
    assert "FAILED" not in ended.stdout
    assert " 197 ull" in ended.stdout
    assert "PcieThroughput" in ended.stdout
    assert ("tailtrace.gpu.sm_active: not_supported" in ended.stdout) == (arch == 7)
    assert ("nvlink receive, GPM" in ended.stdout) == (arch == 9)


def test_values_that_cannot_be_right_fail_it_and_no_gpu_is_said(library: Path) -> None:
    broken = run(library, "gpus 1\ngpm.2 180\n")
    assert broken.returncode == 1
    assert "FAILED     tailtrace.gpu.sm_active" in broken.stdout
    none = run(library, "init 9\n")
    assert none.returncode == 1
    assert "no GPU can be read" in none.stdout
