"""Keeps pandas out of a process: pyarrow loads it, 50 MB, at its first array, wanted or not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NotHere(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)
        return None


def keep_pandas_out() -> None:
    """From now on `import pandas` fails, as if it were not installed."""
    sys.meta_path.insert(0, _NotHere())
