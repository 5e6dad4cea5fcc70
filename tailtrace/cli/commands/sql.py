"""`tailtrace sql`: a read-only statement against a running server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tailtrace.cli import options


def sql(
    statement: Annotated[str, typer.Argument(help="A SELECT statement; `-` reads it from stdin.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Most rows that are given.")] = 1000,
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
    as_json: options.AsJson = False,
) -> None:
    """Run a read-only SQL statement; prints tab-separated columns, names first."""
    import json
    import sys

    from tailtrace.cli.client import ApiClient

    if statement == "-":
        statement = sys.stdin.read()
    answer = ApiClient(url, token).post("sql", {"sql": statement, "limit": limit})
    if as_json:
        typer.echo(json.dumps(answer))
        return
    for line in _tab_separated(answer):
        typer.echo(line)
    if answer["truncated"]:
        typer.echo(f"there are more than {limit} rows: see --limit", err=True)


def _tab_separated(answer: dict[str, Any]) -> list[str]:
    return ["\t".join(_cell(value) for value in row) for row in [answer["columns"], *answer["rows"]]]


def _cell(value: Any) -> str:
    import json

    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    return json.dumps(value)
