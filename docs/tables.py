"""Writes the tables of docs/ that come from code: `python docs/tables.py` rewrites them, `--check` only compares.

A page marks a table's place by `<!-- table: NAME -->` and `<!-- end -->`; what lies between is made here. The test
suite runs the check, so a vocabulary or a setting cannot change without its page.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tailtrace.causes import CAUSES
from tailtrace.stages import REQUEST_STAGES, STARTUP_STAGES, Stage

DOCS = Path(__file__).resolve().parent
MARKED = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _stages(stages: tuple[Stage, ...]) -> str:
    return markdown(
        ("stage", "kind", "resource", "from -> to, or what it is"),
        ([f"`{stage.name}`", stage.kind, stage.resource, stage.meaning] for stage in stages),
    )


def request_stages() -> str:
    return _stages(REQUEST_STAGES)


def startup_stages() -> str:
    return _stages(STARTUP_STAGES)


def causes() -> str:
    return markdown(
        ("cause", "shows in", "what ran short", "in words", "中文"),
        ([f"`{c.code}`", f"`{c.stage}`" if c.stage else "any", c.resource, c.en, c.zh] for c in CAUSES),
    )


def server_settings() -> str:
    from tailtrace.ingest.settings import ServerSettings

    def row(name: str) -> tuple[str, str, str, str]:
        field = ServerSettings.model_fields[name]
        annotation = getattr(field.annotation, "__name__", str(field.annotation)).lower()
        kind = {"str": "text", "path": "path", "int": "number", "bool": "true or false"}.get(annotation, annotation)
        default = "the platform's data directory" if field.default_factory else _plain(field.default)
        return f"`TAILTRACE_{name.upper()}`", kind, default, field.description or ""

    return markdown(("variable", "type", "default", "what"), map(row, ServerSettings.model_fields))


def client_settings() -> str:
    from tailtrace.instrumentation.settings import Settings

    default = Settings()
    return markdown(
        ("argument", "variable", "default", "what"),
        (
            (
                f"`{item.name}`",
                ", ".join(f"`{name}`" for name in item.metadata["env"]),
                _plain(getattr(default, item.name) or ("" if item.type != "bool" else False)),
                item.metadata["text"],
            )
            for item in dataclasses.fields(Settings)
        ),
    )


def _counters(*rooms: str) -> str:
    from tailtrace.instrumentation.sampler.catalogue import METRICS

    return markdown(
        ("metric", "unit", "kind", "what", "source", "window", "since", "absent when", "attributes"),
        (
            (
                f"`{m.name}`", f"`{m.unit}`", m.kind, m.meaning, m.source, m.window, m.since, m.absent,
                ", ".join(f"`{name}`" for name in m.attributes) or "none",
            )
            for m in METRICS
            if m.room in rooms
        ),
    )  # fmt: skip


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}".replace(",", " ") if isinstance(value, int) and value > 65535 else str(value) or "empty"


def commands() -> str:
    """One section a command: its usage, what it does, its options."""
    from typer.main import get_command

    from tailtrace.cli.app import app

    group = get_command(app)
    return "\n".join(_command(name, command) for name, command in group.commands.items())  # type: ignore[attr-defined]


def _command(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join([f"tailtrace {name}", *command.collect_usage_pieces(context)])
    options = [
        (", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts]), parameter.help or "")
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden
    ]
    words = [line.strip() for line in (command.help or "").strip().splitlines()]
    table = "\n" + markdown(("option", "what"), options) if options else ""
    return f"## `{usage}`\n\n" + "\n".join(words) + "\n" + table


TABLES: dict[str, Callable[[], str]] = {
    "request-stages": request_stages,
    "startup-stages": startup_stages,
    "causes": causes,
    "server-settings": server_settings,
    "client-settings": client_settings,
    "commands": commands,
    "gpu-counters": lambda: _counters("gpu"),
    "link-counters": lambda: _counters("link"),
    "host-counters": lambda: _counters("host"),
    "service-counters": lambda: _counters("service"),
    "sampler-counters": lambda: _counters("sampler"),
}


def rendered(text: str) -> str:
    """The page with every marked table made anew; KeyError for a name that no function makes."""
    return MARKED.sub(lambda match: match[1] + TABLES[match[2]]() + match[3], text)


def main(check: bool) -> int:
    """The number of pages that differed; without `check` they are rewritten."""
    differing = 0
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        if (new := rendered(text)) != text:
            differing += 1
            print(f"{page.relative_to(DOCS.parent)}: {'differs from the code' if check else 'rewritten'}")
            if not check:
                page.write_text(new)
    return differing


if __name__ == "__main__":
    checking = "--check" in sys.argv[1:]
    pages = main(checking)
    sys.exit(1 if checking and pages else 0)
