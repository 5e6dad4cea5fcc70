"""What is shipped to run the product elsewhere names things that exist."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

from tailtrace.cli.app import app
from tailtrace.ingest.settings import ServerSettings
from tailtrace.lab import Scenario

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = set(get_command(app).commands)  # type: ignore[attr-defined]
VARIABLES = {f"TAILTRACE_{name.upper()}" for name in ServerSettings.model_fields}


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return loaded


def test_every_part_runs_a_command_that_exists_with_settings_that_exist() -> None:
    services = compose()["services"]
    ours = {name: service for name, service in services.items() if "tailtrace" in service["image"]}
    assert set(ours) == {"ingest", "ingest-2", "worker", "beat", "dashboard", "lab"}
    for name, service in ours.items():
        assert set(service["environment"]) <= VARIABLES
        if "entrypoint" not in service:
            assert service["command"] == [name.partition("-")[0]]
            assert service["command"][0] in COMMANDS


def test_every_receiver_has_a_journal_and_doors_of_its_own() -> None:
    receivers = [service for service in compose()["services"].values() if service.get("command") == ["ingest"]]
    for owned in ("volumes", "ports"):
        given = [entry.rpartition(":")[0] for service in receivers for entry in service[owned]]
        assert len(given) == len(set(given)) >= len(receivers) == 2


def checked(path: Path) -> subprocess.CompletedProcess[str]:
    """The file against the schema of the Compose specification that the checker brings along."""
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_compose_file_is_one(tmp_path: Path) -> None:
    assert checked(ROOT / "compose.yaml").returncode == 0
    broken = compose()
    broken["services"]["ingest"]["helthcheck"] = {}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(broken))
    refused = checked(tmp_path / "compose.yaml")
    assert (refused.returncode, "helthcheck" in refused.stdout) == (1, True)


def test_the_lab_knows_its_arguments() -> None:
    """The other parts are run as processes by the end-to-end test, with this file's commands."""
    lab = compose()["services"]["lab"]
    told = subprocess.run(
        [sys.executable, *lab["entrypoint"][1:], "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert all(f"{argument.partition('=')[0]} " in told for argument in lab["command"])
    for argument in lab["command"]:
        if "scenario" in argument:
            Scenario.load(argument.partition("=")[2])
    assert lab["profiles"] == ["lab"]


def test_no_password_has_a_default_and_no_port_is_open_to_others() -> None:
    text = (ROOT / "compose.yaml").read_text()
    for name in re.findall(r"\$\{(\w*(?:PASSWORD|TOKEN)\w*)([^}]*)\}", text):
        assert name[1].startswith(":?"), name
    for service in compose()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_what_keeps_data_has_a_volume_and_all_have_limits_or_a_profile() -> None:
    loaded = compose()
    named = {line.partition(":")[0] for s in loaded["services"].values() for line in s.get("volumes", [])}
    assert set(loaded["volumes"]) <= named
    for name, service in loaded["services"].items():
        assert (
            service["profiles"] == ["lab"] if name == "lab" else service["deploy"]["resources"]["limits"]["memory"]
        ), name
        for mounted in service.get("volumes", []):
            if mounted.startswith("./"):
                assert (ROOT / mounted.partition(":")[0]).exists()
    healthy = {name for name, service in loaded["services"].items() if "healthcheck" in service}
    for service in loaded["services"].values():
        for needed, how in (service.get("depends_on") or {}).items():
            assert how == {"condition": "service_healthy"}
            assert needed in healthy


def test_everything_that_runs_for_long_is_looked_at(tmp_path: Path) -> None:
    services = compose()["services"]
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"lab"}
    for name in ("worker", "beat"):
        (_, *test) = services[name]["healthcheck"]["test"][1:]
        mark = services[name]["environment"]["TAILTRACE_HEARTBEAT_FILE"]
        here = tmp_path / name
        command = [sys.executable, *(part.replace(mark, str(here)) for part in test)]
        assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 1  # never marked
        here.touch()
        assert subprocess.run(command, timeout=60, check=False).returncode == 0
        os.utime(here, (0, 0))
        assert subprocess.run(command, timeout=60, check=False).returncode == 1


def test_units_start_commands_that_exist() -> None:
    for path in (ROOT / "deploy" / "systemd").iterdir():
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(path)
        assert unit["Service"]["ExecStart"].rpartition(" ")[2] in COMMANDS | {"%i"}


def test_the_servers_own_logs_are_bounded() -> None:
    root = ET.parse(ROOT / "deploy" / "clickhouse" / "own-logs.xml").getroot()
    assert all(child.get("remove") == "1" or child.find("ttl") is not None for child in root)


def test_the_collector_writes_into_tables_that_exist() -> None:
    from tailtrace.ingest.store import ddl

    exporter = yaml.safe_load((ROOT / "deploy" / "otel-collector.yaml").read_text())["exporters"][
        "clickhouse/tailtrace"
    ]
    tables = [exporter["traces_table_name"], exporter["logs_table_name"]]
    tables += [table["name"] for table in exporter["metrics_tables"].values()]
    made = set(re.findall(r"^CREATE TABLE (\w+)", ddl(), re.MULTILINE))
    assert set(tables) <= made
    assert exporter["create_schema"] is False
