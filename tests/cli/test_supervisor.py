"""The parent against small stand-ins for the owner: what it restarts, what it gives up on, what it kills."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tailtrace.cli.processes.supervisor import Supervisor, pause_s

PREAMBLE = """
import json, os, signal, sys, time
settings = json.loads(sys.stdin.read())
status = int(next(a for a in sys.argv if a.startswith("--status=")).partition("=")[2])
def tell(**message): os.write(status, (json.dumps(message) + "\\n").encode())
lives = settings["lives"]
with open(lives, "a") as file: file.write(f"{os.getpid()}\\n")
life = len(open(lives).readlines())
"""


class Run:
    """One supervised stand-in whose body is `script`; stops by itself at the `stop_at`-th line said or at readiness."""

    def __init__(self, tmp_path: Path, script: str, *, stop_when: str = "", hung_s: float = 30) -> None:
        (tmp_path / "owner.py").write_text(PREAMBLE + script)
        self.lives = tmp_path / "lives"
        self.said: list[str] = []
        self.stops = 0
        self._stop_when = stop_when
        supervisor = Supervisor(
            [sys.executable, str(tmp_path / "owner.py")],
            f'{{"lives": "{self.lives}"}}',
            {},
            on_ready=lambda: self.say("first ready"),
            on_stop=self._count_stop,
            say=self.say,
            hung_s=hung_s,
        )
        self.code = supervisor.run()

    def say(self, line: str) -> None:
        self.said.append(line)
        if self._stop_when and self._stop_when in line:
            os.kill(os.getpid(), signal.SIGTERM)

    def _count_stop(self) -> None:
        self.stops += 1

    def pids(self) -> list[int]:
        return [int(line) for line in self.lives.read_text().splitlines()]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_stops_in_order_at_sigterm(tmp_path: Path) -> None:
    script = """
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
tell(event="ready")
while not stopped: time.sleep(0.01)
open(lives + ".orderly", "w").close()
"""
    run = Run(tmp_path, script, stop_when="first ready")
    assert run.code == 0
    assert run.said == ["first ready"]
    assert run.stops == 1
    assert (tmp_path / "lives.orderly").exists()
    assert all(gone(pid) for pid in run.pids())


def test_an_owner_that_crashes_is_started_again(tmp_path: Path) -> None:
    script = """
tell(event="ready")
if life == 1: os.kill(os.getpid(), signal.SIGSEGV)
time.sleep(60)
"""
    run = Run(tmp_path, script, stop_when="ready again")
    assert run.code == 0
    assert len(run.pids()) == 2
    assert run.said[0] == "first ready"
    assert "SIGSEGV" in run.said[1]
    assert run.said[2] == "tailtrace: ready again"


def test_an_owner_without_sign_of_life_is_killed_and_started_again(tmp_path: Path) -> None:
    script = """
if life == 1: signal.signal(signal.SIGTERM, signal.SIG_IGN)
tell(event="ready")
time.sleep(60)
"""
    run = Run(tmp_path, script, stop_when="ready again", hung_s=0.5)
    assert run.code == 0
    assert any("has shown no life" in line for line in run.said)
    assert gone(run.pids()[0])


def test_a_reason_that_no_restart_mends_ends_it_with_its_code(tmp_path: Path) -> None:
    script = """
tell(event="failed", code=3, message="the directory is in use (pid 17)")
sys.exit(3)
"""
    run = Run(tmp_path, script)
    assert run.code == 3
    assert run.said == ["tailtrace: the directory is in use (pid 17)"]
    assert len(run.pids()) == 1


def test_what_the_owner_started_goes_with_it(tmp_path: Path) -> None:
    script = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
with open(lives, "a") as file: file.write(f"{child.pid}\\n")
tell(event="ready")
time.sleep(60)
"""
    run = Run(tmp_path, script, stop_when="first ready")
    assert len(run.pids()) == 2
    deadline = time.monotonic() + 10
    while not ended(run.pids()[1]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended(run.pids()[1])


def ended(pid: int) -> bool:
    """Gone, or dead and only not yet taken note of by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("deaths", "seconds"), [(0, 0.0), (1, 0.0), (2, 0.5), (3, 1.0), (4, 2.0), (8, 30.0), (100, 30.0)]
)
def test_pauses_grow_to_a_limit(deaths: int, seconds: float) -> None:
    assert pause_s(deaths) == seconds
