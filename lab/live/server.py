"""A server of the live lab as a process: says its port, ends with its parent."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import uvicorn

from tailtrace.instrumentation import instrument, shutdown, wrap_gateway
from tailtrace.lab.faults import Faults
from tailtrace.lab.live.engine_app import EngineApp
from tailtrace.lab.live.gateway_app import GatewayApp
from tailtrace.lab.live.wire import application
from tailtrace.lab.scenario import Scenario
from tailtrace.lab.telemetry.processes import Processes

SHUTDOWN_S = 1.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one process serves: a replica of `service`, or the gateway in front of `backends`."""

    scenario: Scenario
    endpoint: str
    seed: int
    service: str = ""
    replica: int = 0
    backends: Mapping[str, list[str]] | None = None


def serve(assignment: Assignment, ready: Connection) -> None:
    """Run until SIGTERM, SIGINT or the parent's end; sends the port through `ready` once it listens."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    scenario = assignment.scenario
    processes = Processes(scenario, Faults(scenario, 1), length_ns=1, seed=assignment.seed)
    if assignment.backends is None:
        resource = processes.engine(assignment.service, assignment.replica, 0)
        gpus = str(resource["tailtrace.gpu_uuids"]).split(",")
        handler: Any = EngineApp(scenario, assignment.service, assignment.replica, assignment.seed, gpus)
    else:
        resource = processes.gateway()
        handler = GatewayApp(dict(assignment.backends))
    # The process and the host are real; the model and its GPUs are not.
    said = {
        name: value for name, value in resource.items() if name.startswith("tailtrace.") and name != "tailtrace.role"
    }
    instrument(
        resource["service.name"], endpoint=assignment.endpoint, role=resource["tailtrace.role"],
        service_version=resource["service.version"], resource=said, shutdown_s=SHUTDOWN_S,
    )  # fmt: skip
    asyncio.run(_serve(wrap_gateway(application(handler)), ready))
    shutdown(SHUTDOWN_S)


async def _serve(app: Any, ready: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    # Requests cut off at the end are part of the plan: no tracebacks of them.
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan="on", timeout_graceful_shutdown=0, ws="none"
    )
    server = uvicorn.Server(config)
    parent = multiprocessing.parent_process()
    if parent is not None:
        asyncio.get_running_loop().add_reader(parent.sentinel, _end, server, parent.sentinel)
    ready.send(listener.getsockname()[1])
    await server.serve(sockets=[listener])


def _end(server: uvicorn.Server, sentinel: int) -> None:
    asyncio.get_running_loop().remove_reader(sentinel)
    server.should_exit = True
