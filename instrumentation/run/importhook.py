"""Call a function when a module has been imported. Standard library only: loaded at the start of every Python process
under `tailtrace run`, so it must cost next to nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

_waiting: dict[str, list[Callable[[Any], None]]] = {}


def when_imported(name: str, function: Callable[[Any], None]) -> None:
    """Call `function(module)` once `name` is imported; at once where it is already. Errors are the function's own."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        function(module)
        return
    _waiting.setdefault(name, []).append(function)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _Finder:
    """Asks the other finders for a watched module, and has its loader call back. Each name is found once."""

    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _waiting or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        except Exception:
            return None
        finally:
            self._asking.discard(name)
        execute = getattr(spec.loader, "exec_module", None) if spec is not None else None
        if spec is None or execute is None:
            return spec

        def exec_module(module: Any) -> None:
            execute(module)
            for function in _waiting.pop(name, []):
                function(module)

        try:
            spec.loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        except AttributeError:
            # A loader that takes no attributes (built-in modules): it cannot be watched.
            pass
        return spec


_FINDER: Any = _Finder()
