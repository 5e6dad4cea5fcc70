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
    from tailtrace.instrumentation.sampler.command import parser

    commands = get_command(app).commands  # type: ignore[attr-defined]
    options = {name: {option for p in each.params for option in p.opts} for name, each in commands.items()}
    # The commands of the bare client are not the server's: `run` hands what follows to the command it starts.
    options |= {"sample": set(parser()._option_string_actions), "run": set()}
    for page in PAGES:
        for line in "\n".join(_code(page, "sh") + _code(page, "console")).splitlines():
            found = re.search(r"(?:^|\s)tailtrace (\w+)(.*?)(?:#|$)", line)
            if found is None:
                continue
            name, rest = found[1], found[2]
            assert name in options, f"{page.name}: tailtrace {name}"
            known = options[name] | {"--help"}
            for option in re.findall(r"--[a-z-]+", rest) if name != "run" else ():
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


def test_worked_example_is_what_the_judge_says() -> None:
    """The spans of the table in definitions.md, judged, give the second table to the nanosecond."""
    from tailtrace.analytics.judge import judge_spans
    from tailtrace.analytics.trace import Span

    def span(number: int, parent: int, name: str, start: int, end: int, **attributes: str) -> Span:
        return Span(
            trace_id="ab" * 16,
            span_id=f"{number:016x}",
            parent_span_id=f"{parent:016x}" if parent else "",
            name=name,
            kind="Server" if not parent else "Internal",
            service="gateway",
            start_unix_ns=10**18 + start * 10**6,
            end_unix_ns=10**18 + end * 10**6,
            attributes={"tailtrace." + key: value for key, value in attributes.items()},
        )

    (judged,) = judge_spans(
        [
            span(1, 0, "POST /v1/chat/completions", 0, 100),
            span(2, 1, "verify_key", 2, 10, stage="auth"),
            span(3, 1, "tokenize", 10, 15, stage="tokenize"),
            span(4, 1, "audit", 12, 60, stage="custom", blocking="false"),
            span(5, 1, "llm_request", 18, 95),
            span(6, 5, "queue", 20, 50, stage="queue"),
            span(7, 5, "prefill", 50, 62, stage="prefill"),
            span(8, 5, "decode", 62, 94, stage="decode"),
            span(9, 1, "send", 63, 99, stage="stream_out"),
        ]
    )
    expected = {"Queue": 30, "Decode": 32, "Prefill": 12, "Auth": 8, "Tokenize": 5, "StreamOut": 5, "App": 2}
    assert {stem: judged.row[f"{stem}Ns"] / 10**6 for stem in expected} == expected
    assert judged.row["UnexplainedNs"] == 6 * 10**6
    assert judged.row["CustomNs"] == 0


def test_every_flag_is_explained() -> None:
    import inspect

    from tailtrace.analytics.engines import vllm
    from tailtrace.analytics.judge import rows

    given = set(re.findall(r'\("(\w+)", ', inspect.getsource(rows._flags)))
    given |= set(re.findall(r'"(\w+)": ', "".join(re.findall(r"flags=\{(.*?)\}", inspect.getsource(vllm)))))
    section = (ROOT / "docs" / "definitions.md").read_text().partition("## Flags")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == given
