"""`tailtrace run --check -- CMD`: what would be hooked, asked of the very Python that CMD would run with."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def interpreter_of(program: Path) -> Path | None:
    """The Python that runs `program`: itself, or the one its first line names. None where it is neither."""
    if program.name.startswith("python"):
        return program
    try:
        with program.open("rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = shlex.split(first[2:].decode("utf-8", "replace"))
    if len(words) > 1 and Path(words[0]).name == "env":
        words = words[1:]
    if not words or not Path(words[0]).name.startswith("python"):
        return None
    if os.sep in words[0]:
        return Path(words[0])
    import shutil

    found = shutil.which(words[0])
    return Path(found) if found else None


def check_program(program: Path, words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print the report and return the exit code: 0 when something would be hooked, 1 when not."""
    print(f"command      {shlex.join(words)}")
    python = interpreter_of(program)
    if python is None:
        print(f"python       unknown: {program} is not a Python script; Python processes it starts are hooked alike")
        return 1
    print(f"python       {python}", flush=True)
    probe = subprocess.run(
        [python, "-c", "from tailtrace.instrumentation.run.probe import main; raise SystemExit(main())"],
        env={**environ, "TAILTRACE_RUN": ""},
        check=False,
    )
    if probe.returncode not in (0, 1):
        print(f"tailtrace    cannot be imported by {python}: install it there (pip install tailtrace)")
        return 1
    return probe.returncode
