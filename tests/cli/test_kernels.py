"""What is compiled ahead of the first request."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tailtrace.cli.processes import kernels


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
