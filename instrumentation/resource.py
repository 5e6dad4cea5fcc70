"""Who this process is: the resource that every batch carries."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path
from typing import Any

from tailtrace.instrumentation.settings import Settings
from tailtrace.version import VERSION

# Said by `instrument(model=...)` and `describe()` without their prefix; anything dotted is taken as it is.
OWN_KEYS = frozenset(
    {
        "role", "engine", "engine_version", "engine_id", "gpu_uuids", "model", "precision", "quantization", "tp", "pp",
        "max_batch", "gpu_model", "simulated",
    }
)  # fmt: skip


def host_id() -> str:
    """The machine's id, the same for all its processes: machine-id where there is one, else the host's name."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if text:
            return text
    return socket.gethostname()


def keyed(attributes: dict[str, Any]) -> dict[str, Any]:
    """`attributes` with the prefix of our own keys put on."""
    return {f"tailtrace.{name}" if name in OWN_KEYS else name: value for name, value in attributes.items()}


def build_resource(settings: Settings) -> dict[str, Any]:
    """The resource of this process; the instance id is new at each call, so call it again after a fork."""
    pid = os.getpid()
    host = host_id()
    resource: dict[str, Any] = {
        "service.name": "unknown_service:python",
        "host.id": host,
        "host.name": socket.gethostname(),
        "telemetry.sdk.name": "tailtrace",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": VERSION,
    }
    resource.update(keyed(settings.resource))
    if settings.service_name:
        resource["service.name"] = settings.service_name
    if settings.service_version:
        resource["service.version"] = settings.service_version
    if settings.role:
        resource["tailtrace.role"] = settings.role
    resource["process.pid"] = pid
    # A value from the environment would be shared by every process that inherits it, and merge their series.
    resource["service.instance.id"] = str(uuid.uuid4())
    if resource.get("tailtrace.role") == "scheduler":
        resource.setdefault("tailtrace.engine_id", f"{resource['host.id']}/{pid}/0")
    return resource
