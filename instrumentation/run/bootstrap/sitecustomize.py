"""Python runs this at the start of every process under `tailtrace run`, spawned children included.

It only puts an import hook in. The sitecustomize that it stands before, where there is one, runs afterwards.
"""

from __future__ import annotations

from typing import Any


def _watch() -> None:
    import importlib.util
    import os
    import sys

    if not os.environ.get("TAILTRACE_RUN"):
        return
    here = os.path.dirname(os.path.abspath(__file__))
    name = "tailtrace.instrumentation.run.importhook"
    spec: Any = importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(here), "importhook.py"))
    hook: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    sys.modules[name] = hook

    def found(module: Any) -> None:
        try:
            from tailtrace.instrumentation.run.targets import installed
        except Exception as error:
            if not os.environ.get("TAILTRACE_RUN_FAILED"):
                os.environ["TAILTRACE_RUN_FAILED"] = "1"
                print(
                    f"tailtrace: nothing is recorded in {sys.executable}: {error}; install tailtrace there",
                    file=sys.stderr,
                )
            return
        installed(module)

    for target in os.environ["TAILTRACE_RUN"].split(","):
        hook.when_imported(target, found)


def _chain() -> None:
    """Run the sitecustomize further down the path, as Python would have without us."""
    import importlib.machinery
    import importlib.util
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        # From here on `import sitecustomize` gives the user's own, as it would without us.
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


try:
    _watch()
except Exception as error:
    import sys

    print(f"tailtrace: no import hook in this process: {error}", file=sys.stderr)
_chain()
