"""The processes of the fleet as telemetry names them: one resource for each, a new one after each restart."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from tailtrace.lab.constants import stream
from tailtrace.lab.faults import Faults
from tailtrace.lab.scenario import Scenario, Service
from tailtrace.lab.service.hardware import GPU_NAMES
from tailtrace.version import VERSION

Resource = Mapping[str, Any]

_EVER = -(1 << 62)  # before every deploy, also those from before the run


class Processes:
    """`gateway()` and `engine(service, replica, at)` give the resource attributes of the process that lived then."""

    def __init__(self, scenario: Scenario, faults: Faults, *, length_ns: int, seed: int) -> None:
        self._draw = stream(seed, "processes")
        fleet = scenario.fleet
        self._gateway = self._process(fleet.gateway, fleet.gateway_version, "gateway", "gw-0")
        self._engines: dict[tuple[str, int], list[tuple[int, Resource]]] = {}
        for service in fleet.services:
            for replica in range(service.replicas):
                self._engines[service.name, replica] = self._lives(scenario, service, replica, faults, length_ns)

    def gateway(self) -> Resource:
        return self._gateway

    def engine(self, service: str, replica: int, at_ns: int) -> Resource:
        lives = self._engines[service, replica]
        index = len(lives) - 1
        while index and lives[index][0] > at_ns:
            index -= 1
        return lives[index][1]

    def _lives(
        self, scenario: Scenario, service: Service, replica: int, faults: Faults, length_ns: int
    ) -> list[tuple[int, Resource]]:
        host = f"{service.name}-{replica}"
        host_id = self._uuid()
        gpus = ",".join(f"GPU-{self._uuid()}" for _ in range(service.tp))
        starts = [(_EVER, service.version)]
        starts += [
            (deploy.at_ns(length_ns), deploy.version) for deploy in scenario.deploys if deploy.service == service.name
        ]
        restarts = faults.windows("restart_s", service.name)
        starts += [(start, "") for start, _, seconds, index in restarts if seconds > 0 and replica == (index or 0)]
        lives: list[tuple[int, Resource]] = []
        version = service.version
        for start, changed in sorted(starts):
            version = changed or version
            resource = self._process(service.name, version, "api_server", host, host_id)
            pid = resource["process.pid"]
            resource |= {
                "tailtrace.engine": "vllm" if service.kind == "llm" else "triton",
                "tailtrace.engine_version": "0.32.0" if service.kind == "llm" else "2.61.0",
                "tailtrace.engine_id": f"{host_id}/{pid}/0",
                "tailtrace.gpu_uuids": gpus,
                "tailtrace.gpu_model": GPU_NAMES[service.gpu],
                "tailtrace.model": service.model,
                "tailtrace.precision": service.precision,
                "tailtrace.tp": service.tp,
                "tailtrace.pp": 1,
                "tailtrace.max_batch": service.max_batch,
            }
            lives.append((start, resource))
        return lives

    def _process(self, service: str, version: str, role: str, host: str, host_id: str = "") -> dict[str, Any]:
        return {
            "service.name": service,
            "service.version": version,
            "service.instance.id": self._uuid(),
            "host.id": host_id or self._uuid(),
            "host.name": host,
            "process.pid": int(self._draw.integers(200, 60000)),
            "telemetry.sdk.name": "tailtrace",
            "telemetry.sdk.language": "python",
            "telemetry.sdk.version": VERSION,
            "tailtrace.role": role,
            "tailtrace.simulated": True,
        }

    def _uuid(self) -> str:
        return str(uuid.UUID(bytes=self._draw.bytes(16), version=4))
