"""`tailtrace schema`: the tables, as they are created."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the DDL of every table and view, in order of migration."""
    from tailtrace.ingest.store.migrations import ddl

    typer.echo(ddl())
