"""`tailtrace lab`: the scenarios that the demo can play."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="An inference service in miniature with faults of known cause.", no_args_is_help=True)


@app.callback()
def _lab() -> None:
    """Keeps `list` a command of its own."""


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print names and titles as JSON.")] = False) -> None:
    """List the scenarios that `tailtrace demo --scenario NAME` plays."""
    import json

    from tailtrace.lab import list_scenarios

    found = list_scenarios()
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, title in found.items():
        typer.echo(f"{name:22s} {title}")
