"""Runs in the program's own Python under --check: imports each target that is installed and tries its hooks."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util

from tailtrace.instrumentation.engines import patch
from tailtrace.instrumentation.native import in_words
from tailtrace.instrumentation.run.targets import TARGETS, installed
from tailtrace.instrumentation.settings import read_settings


def main() -> int:
    """Print one line a library; 0 when at least one hook point is there."""
    settings = read_settings()
    print(f"sends to     {settings.traces_endpoint or settings.endpoint} ({settings.protocol})")
    print(f"recorder     {in_words()}")
    print(f"service      {settings.service_name or 'named after what is found'}")
    absent: dict[str, str] = {}
    libraries = list(dict.fromkeys(name.partition(".")[0] for name in TARGETS))
    for name in TARGETS:
        library = name.partition(".")[0]
        if library in absent:
            continue
        if importlib.util.find_spec(library) is None:
            absent[library] = "not installed"
            continue
        try:
            installed(importlib.import_module(name))
        except ModuleNotFoundError:
            patch.refused.setdefault(library, {})[name] = "no such module"
        except Exception as error:
            patch.refused.setdefault(library, {})[name] = f"{type(error).__name__}: {error}"
    for library in libraries:
        if library in absent:
            print(f"{library:12} {absent[library]}")
            continue
        print(f"{library:12} {_version(library)}: {', '.join(patch.hooked.get(library, [])) or 'nothing'}")
        for path, reason in patch.refused.get(library, {}).items():
            print(f"{'':12} not {path}: {reason}")
    return 0 if patch.hooked else 1


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "version unknown"
