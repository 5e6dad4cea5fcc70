"""The pages say what the code does: tables are the vocabularies', links resolve, Python compiles, commands exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def _tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _anchor(heading: str) -> str:
    """As GitHub makes them: lower case, punctuation gone, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _code(page: Path, language: str) -> list[str]:
    return [body for found, body in FENCED.findall(page.read_text()) if found == language]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_are_those_of_the_code(page: Path) -> None:
    text = page.read_text()
    assert _tables().rendered(text) == text, "run: python docs/tables.py"


def test_every_table_is_on_a_page() -> None:
    shown = set(re.findall(r"<!-- table: ([a-z-]+) -->", "".join(page.read_text() for page in PAGES)))
    assert shown == set(_tables().TABLES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        if fragment:
            anchors = {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)}
            assert fragment in anchors, f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_compile_and_import_what_exists(page: Path) -> None:
    for block in _code(page, "python"):
        tree = ast.parse(block, filename=str(page))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tailtrace"):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{page.name}: {node.module} has no {alias.name}"


def test_commands_and_options_named_on_pages_exist() -> None:
    from tailtrace.cli.app import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    for page in PAGES:
        for line in "\n".join(_code(page, "sh") + _code(page, "console")).splitlines():
            found = re.search(r"(?:^|\s)tailtrace (\w+)(.*?)(?:#|$)", line)
            if found is None:
                continue
            name, rest = found[1], found[2]
            assert name in commands, f"{page.name}: tailtrace {name}"
            known = {option for parameter in commands[name].params for option in parameter.opts} | {"--help"}
            for option in re.findall(r"--[a-z-]+", rest):
                assert option in known, f"{page.name}: tailtrace {name} {option}"


def test_worked_example_adds_up_and_names_known_stages() -> None:
    from tailtrace.stages import BY_NAME, INDEX

    page = ROOT / "docs" / "definitions.md"
    (example,) = _code(page, "json")
    request = json.loads(example)
    names = [stage["stage"] for stage in request["stages"]]
    total = sum(stage["duration_ns"] for stage in request["stages"]) + request["unexplained_ns"]
    assert total == request["duration_ns"]
    assert all(stage["share"] == stage["duration_ns"] / request["duration_ns"] for stage in request["stages"])
    assert set(names) <= set(BY_NAME)
    assert names == sorted(names, key=INDEX.__getitem__)
