"""`tailtrace requests`: the newest requests of a running server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from rich.table import Table

_SPAN_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def requests(
    service: Annotated[str | None, typer.Option("--service", help="Only requests that this service answered.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="15m, 6h, 7d back from now, or an ISO time.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, newest first.")] = 20,
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
    as_json: options.AsJson = False,
) -> None:
    """List requests, newest first: how long, which stage took most, how much is unexplained."""
    import json

    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.terminal import console

    terminal = console()
    since_time = absolute(since) if since else None
    answer = ApiClient(url, token).get("requests", service=service, since=since_time, limit=limit)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    if not answer["requests"]:
        typer.echo("no requests are stored here yet, or none match; `tailtrace doctor` sends one span to see")
        return
    terminal.print(_table(answer["requests"]))
    terminal.print(f"{len(answer['requests'])} of {answer['total']} requests, times in UTC")


def absolute(since: str, now_ns: int | None = None) -> str:
    """A span back from now as a time; anything else is left to the server, which knows what it accepts."""
    import re
    import time

    match = re.fullmatch(r"(\d{1,6})([smhdw])", since.strip())
    if match is None:
        return since
    now_ns = time.time_ns() if now_ns is None else now_ns
    return str(now_ns - int(match[1]) * _SPAN_S[match[2]] * 1_000_000_000)


def _table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    from tailtrace.cli.formats import duration, moment, plain, share

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("start", "service", "request"):
        table.add_column(name, no_wrap=True)
    for name in ("duration", "TTFT"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("longest stage", no_wrap=True)
    table.add_column("unexplained", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("trace", no_wrap=True)
    for row in rows:
        longest = max(row["stages"], key=lambda stage: stage["duration_ns"], default=None)
        table.add_row(
            moment(row["start_unix_ns"]),
            plain(row["service"]),
            plain(row["name"]),
            duration(row["duration_ns"]),
            duration(row["ttft_ns"]),
            f"{longest['stage']} {share(longest['share'])}" if longest else "-",
            share(row["unexplained_ns"] / row["duration_ns"] if row["duration_ns"] else None),
            plain(row["outcome"]),
            row["trace_id"],
        )
    return table
