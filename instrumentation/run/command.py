"""The command `tailtrace run [--check] [options] -- CMD...`. Works with the client alone.

It sets a few environment variables and becomes CMD (exec): exit code, signals, terminal and process id are CMD's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tailtrace.errors import ConfigError
from tailtrace.instrumentation.run.targets import TARGETS

USAGE: Final = """\
Usage: tailtrace run [--check] [--sample] [--service NAME] [--endpoint URL] -- CMD [ARGS...]

Runs CMD with instrumentation in it and in every Python process it starts. Nothing in its code changes.

  --check          say what would be hooked, and do not run CMD
  --sample         read this host's GPU, link and host counters too, until CMD ends
  --service NAME   service.name (else OTEL_SERVICE_NAME, else the engine's name)
  --endpoint URL   OTLP receiver (else OTEL_EXPORTER_OTLP_ENDPOINT, else http://127.0.0.1:4318)
  --help           this text

Every other setting is an environment variable: docs/instrumentation.md.
"""

_BOOTSTRAP: Final = Path(__file__).parent / "bootstrap"


def run(arguments: Sequence[str]) -> int:
    """Becomes CMD; returns only for --help and --check. Raises ConfigError for options that do not make sense."""
    words = list(arguments)
    environ: dict[str, str] = {}
    check = sample = False
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if option in {"--help", "-h"}:
            print(USAGE, end="")
            return 0
        if option == "--check":
            check = True
        elif option == "--sample":
            sample = True
        elif option in {"--service", "--endpoint"}:
            if not equals:
                value = words.pop(0) if words else ""
            if not value:
                raise ConfigError(f"tailtrace run: {option} expects a value")
            environ["OTEL_SERVICE_NAME" if option == "--service" else "OTEL_EXPORTER_OTLP_ENDPOINT"] = value
        else:
            raise ConfigError(f"tailtrace run: no option {option}; see tailtrace run --help")
    if not words:
        raise ConfigError("tailtrace run: expected a command: tailtrace run -- CMD [ARGS...]")
    program = shutil.which(words[0])
    if program is None:
        raise ConfigError(f"tailtrace run: {words[0]}: command not found")
    prepared = environment({**os.environ, **environ})
    if check:
        from tailtrace.instrumentation.run.check import check_program

        return check_program(Path(program), words, prepared)
    sys.stdout.flush()
    sys.stderr.flush()
    if sample:
        # This process becomes CMD: its id is the one that the sampler ends with.
        command = [sys.executable, "-m", "tailtrace", "sample", f"--parent={os.getpid()}"]
        subprocess.Popen(command, env={**os.environ, **environ}, stdin=subprocess.DEVNULL)
    os.execve(program, words, prepared)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with our start-up hook before everything else on Python's path."""
    given = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != str(_BOOTSTRAP)]
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join([str(_BOOTSTRAP), *given]),
        "TAILTRACE_RUN": ",".join(TARGETS),
    }
