"""Entry point `opentelemetry_instrumentor`: the same hooks for those who start with `opentelemetry-instrument CMD`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tailtrace.instrumentation.run.importhook import when_imported
from tailtrace.instrumentation.run.targets import TARGETS, installed


class TailtraceInstrumentor:
    """What OpenTelemetry's auto-instrumentation calls; it needs nothing of its packages."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """No package has to be there: each hook waits for its own."""
        return ()

    def instrument(self, **kwargs: Any) -> None:
        """Hook what is imported, and whatever will be."""
        for name in TARGETS:
            when_imported(name, installed)

    def uninstrument(self, **kwargs: Any) -> None:
        """Hooks stay in; without `instrument()` running they pass calls on."""
        from tailtrace.instrumentation import runtime

        runtime.shutdown()
