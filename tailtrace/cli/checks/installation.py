"""Is this installation whole?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

from tailtrace.cli.checks.finding import Finding
from tailtrace.version import VERSION

_CHDB_PROBE: Final = (
    "import chdb; c = getattr(chdb, '_chdb', None); getattr(c, 'set_signal_handlers_enabled', lambda on: None)(False);"
    "print(str(chdb.query('SELECT version()', 'TabSeparated')).strip())"
)
_LOAD_S: Final = 60.0
_REINSTALL: Final = "pip install --force-reinstall chdb"


def python_and_product() -> Finding:
    told = f"tailtrace {VERSION} on Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return Finding("version", True, told)


def server_packages() -> Finding:
    """Everything that the [server] extra asks for is there."""
    missing = sorted(_missing("server"))
    if missing:
        return Finding("packages", False, f"missing: {', '.join(missing)}", "pip install 'tailtrace[server]'")
    return Finding("packages", True, "all of tailtrace[server] are installed")


def recorder() -> Finding:
    """Which twin of the recorder runs: both do the same, one faster."""
    from tailtrace.instrumentation.native import in_words

    return Finding("recorder", True, in_words())


def gpu_package() -> Finding:
    if importlib.util.find_spec("pynvml") is None:
        return Finding("gpu", True, "absent: nvidia-ml-py is not installed (optional: pip install 'tailtrace[gpu]')")
    return Finding("gpu", True, "nvidia-ml-py is installed")


def embedded_database() -> Finding:
    """chdb loads and answers, in a process of its own: one that cannot load may take its process with it."""
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _CHDB_PROBE], capture_output=True, text=True, timeout=_LOAD_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("database", False, f"chdb did not answer within {_LOAD_S:.0f} s", _REINSTALL)
    if probe.returncode != 0:
        last = (probe.stderr.strip().splitlines() or [f"exit code {probe.returncode}"])[-1]
        return Finding("database", False, f"chdb does not load: {last}", _REINSTALL)
    return Finding("database", True, f"chdb loads (ClickHouse {probe.stdout.strip()})")


CHECKS: Final[tuple[Callable[[], Finding], ...]] = (
    python_and_product, server_packages, recorder, embedded_database, gpu_package,
)  # fmt: skip


def _missing(extra: str) -> Iterator[str]:
    """Names of the extra's distributions that are not installed."""
    from packaging.requirements import Requirement

    for line in importlib.metadata.requires("tailtrace") or []:
        requirement = Requirement(line)
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            installed = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield requirement.name
        else:
            if not requirement.specifier.contains(installed, prereleases=True):
                yield f"{requirement.name} {installed} (wanted {requirement.specifier})"
