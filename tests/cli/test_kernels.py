"""What is compiled ahead of the first request."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from packaging.requirements import Requirement

from tailtrace.cli.processes import kernels

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = """
import sys
without = set(sys.argv[1].split(","))

class Absent:
    @staticmethod
    def find_spec(name, path, target=None):
        if name.partition(".")[0] in without:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent)
from tailtrace.cli.processes import kernels
for part in kernels._PARTS.values():
    part()[0]()
"""


def a_kernel(folder: Path | None, source: Path) -> Any:
    code = SimpleNamespace(co_filename=str(source))
    return SimpleNamespace(
        stats=SimpleNamespace(cache_path=None if folder is None else str(folder)),
        py_func=SimpleNamespace(__code__=code, __qualname__="sweep"),
    )


def test_missing_is_what_has_no_code_as_new_as_its_source(tmp_path: Path) -> None:
    source = tmp_path / "lines.py"
    source.write_text("")
    kernel = a_kernel(tmp_path, source)
    assert kernels.missing(kernel)
    (tmp_path / "lines.sweep_all-7.py311.nbi").write_bytes(b"of another")
    assert kernels.missing(kernel)
    made = tmp_path / "lines.sweep-7.py311.nbi"
    made.write_bytes(b"")
    assert not kernels.missing(kernel)
    os.utime(made, (1.0, 1.0))
    assert kernels.missing(kernel)


def test_where_nothing_can_be_kept_nothing_is_made_ahead(tmp_path: Path) -> None:
    assert not kernels.missing(a_kernel(None, tmp_path / "lines.py"))


def test_every_part_names_compiled_functions_of_its_own() -> None:
    for part in kernels._PARTS.values():
        warm_up, own = part()
        assert callable(warm_up)
        assert all(kernel.py_func.__code__.co_filename.endswith(".py") for kernel in own)


def with_what_they_require(names: list[str]) -> set[str]:
    """The distributions `names`, as here installed, and all that those require."""
    found: set[str] = set()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name not in found:
            found.add(name)
            required = [Requirement(line) for line in metadata.requires(name) or ()]
            names += [each.name for each in required if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def test_kernels_compile_with_what_make_installs_first() -> None:
    line = re.search(r"^FOR_KERNELS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line
    installed = {re.sub(r"[-_.]+", "-", each.name).lower() for each in metadata.distributions()}
    first = with_what_they_require([name for name in line[1].split("|") if name.replace(".", "-") in installed])
    without = [
        module
        for module, givers in metadata.packages_distributions().items()
        if first.isdisjoint(re.sub(r"[-_.]+", "-", giver).lower() for giver in givers) and module != "tailtrace"
    ]
    assert "dash" in without
    assert "numba" not in without
    subprocess.run([sys.executable, "-c", WITHOUT, ",".join(without)], cwd=ROOT, check=True)
