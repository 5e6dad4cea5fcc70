"""Starting to record in a process that nobody instrumented by hand."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

from tailtrace.instrumentation import runtime
from tailtrace.instrumentation.engines import patch

_said = 0


def record_here(role: str, *, service_name: str, **resource: Any) -> bool:
    """Call `instrument()` where it has not been called yet, and say what is hooked; True while this process records.

    `service_name` stands only where OTEL_SERVICE_NAME says none. Hooks call this when their process begins to serve.
    """
    global _said
    if runtime.active is None:
        if os.environ.get("OTEL_SERVICE_NAME", "").strip():
            service_name = ""
        runtime.instrument(service_name or None, role=role)
        if runtime.active is None:
            return False
        if multiprocessing.parent_process() is not None:
            # Children of multiprocessing leave by os._exit: of all exit handlers only these finalizers run.
            from multiprocessing.util import Finalize

            Finalize(None, runtime.shutdown, exitpriority=10)
    if resource:
        runtime.describe(**resource)
    if _said != os.getpid():
        _said = os.getpid()
        settings = runtime.active.settings
        print(
            f"tailtrace: recording {runtime.active.resource['service.name']} ({role}, pid {_said}) to "
            f"{settings.traces_endpoint or settings.endpoint}; hooked: {patch.summary()}",
            file=sys.stderr,
        )
    return True
