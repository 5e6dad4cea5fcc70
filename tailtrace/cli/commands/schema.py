"""`tailtrace schema`: the tables, as they are created."""

from __future__ import annotations

from typing import Annotated

import typer

_HEAD = """\
-- Tables of Tailtrace for a ClickHouse cluster. Parsed by the engine, NOT RUN by the project: read it first.
-- docs/operations.md says how the parts are pointed at it.

"""


def schema(
    replicated: Annotated[
        bool, typer.Option("--replicated", help="For one shard of several servers: replicated tables.")
    ] = False,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            help="For the shards of this cluster: ON CLUSTER, and distributed tables by hash of the trace id.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Print the DDL of every table and view, in order of migration."""
    if replicated or cluster:
        from tailtrace.ingest.store.clusters import rendered

        typer.echo(_HEAD + rendered(replicated=replicated, cluster=cluster))
        return
    from tailtrace.ingest.store.migrations import ddl

    typer.echo(ddl())
