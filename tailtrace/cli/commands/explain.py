"""`tailtrace explain`: where one request's time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

_BAR = 32
_PATH_LINES = 24


def explain(
    trace_id: Annotated[str, typer.Argument(help="32 hex digits, as `tailtrace requests` prints them.")],
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
    as_json: options.AsJson = False,
) -> None:
    """Explain one request: stages that sum to its duration, critical path, TTFT, TPOT, what is unexplained, flags."""
    import json
    from urllib.parse import quote

    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.terminal import console

    terminal = console()
    detail = ApiClient(url, token).get(f"requests/{quote(trace_id, safe='')}")
    if as_json:
        typer.echo(json.dumps(detail))
        return
    for part in _page(detail):
        terminal.print(part)


def _page(detail: dict[str, Any]) -> Iterator[RenderableType]:
    from rich.text import Text

    from tailtrace.cli.formats import duration, moment, plain

    first = detail["requests"][0]
    yield Text(f"{plain(first['name'])}  {plain(first['service'])}  {plain(first['outcome'])}", style="bold")
    yield Text(f"trace {plain(detail['trace_id'])}  {moment(first['start_unix_ns'])} UTC", style="dim")
    if detail.get("simulated"):
        yield Text("simulated data", style="yellow")
    if conditions := _conditions(first, detail):
        yield Text(conditions, style="dim")
    yield Text("")
    yield _figures(first)
    if (verdict := _verdict(detail)) is not None:
        yield verdict
    if first["flags"]:
        yield Text("flags: " + ", ".join(plain(flag) for flag in first["flags"]), style="yellow")
    yield Text("")
    yield _stage_table(detail["stage_table"])
    if path := detail["critical_path"]:
        yield Text("")
        yield _critical_path(path, int(first["start_unix_ns"]), detail.get("critical_path_total", len(path)))
    for other in detail["requests"][1:]:
        yield Text(
            f"also in this trace: {plain(other['name'])}  {plain(other['service'])}  {duration(other['duration_ns'])}",
            style="dim",
        )


def _verdict(detail: dict[str, Any]) -> RenderableType | None:
    from rich.text import Text

    from tailtrace.cli.commands.why import headline
    from tailtrace.cli.formats import duration

    found = detail.get("verdict")
    if not found or found["state"] == "too_few":
        return None
    usual = duration(found["usual_ns"])
    if found["verdict"] is None:
        return Text(f"verdict: as usual (mean of the hour before: {usual})", style="dim")
    grown = duration(found["excess_ns"])
    return Text(f"stages that grew: {grown} more than usual (a usual request: {usual}); {headline(found['verdict'])}")


def _conditions(first: dict[str, Any], detail: dict[str, Any]) -> str:
    from tailtrace.cli.formats import plain

    parts = [f"{name} {value}" for name, value in (detail.get("conditions") or {}).items()]
    tokens_in, tokens_out = first["input_tokens"], first["output_tokens"]
    if tokens_in is not None or tokens_out is not None:
        parts.append(
            f"{'?' if tokens_in is None else tokens_in} tokens in, {'?' if tokens_out is None else tokens_out} out"
        )
    if first["n"] > 1:
        parts.append(f"{first['n']} samples")
    return plain(", ".join(parts))


def _figures(first: dict[str, Any]) -> RenderableType:
    from rich.text import Text

    from tailtrace.cli.formats import duration, share

    unexplained = first["unexplained_ns"] / first["duration_ns"] if first["duration_ns"] else None
    unseen = first["ttft_ns"] is None and first["streaming"] is False
    text = Text()
    for name, value in (
        ("total", duration(first["duration_ns"])),
        ("TTFT", "not streamed" if unseen else duration(first["ttft_ns"])),
        ("TPOT", duration(first["tpot_ns"])),
        ("unexplained", share(unexplained)),
    ):
        text.append(f"{name} ", style="dim").append(f"{value}   ", style="bold")
    return text


def _stage_table(lines: list[dict[str, Any]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from tailtrace.cli.formats import duration, plain, share
    from tailtrace.stages import BY_NAME, UNEXPLAINED_LIGHT

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("before 1st token", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for line in lines:
        known = BY_NAME.get(line["stage"])
        colour = known.dark if known else UNEXPLAINED_LIGHT
        table.add_row(
            plain(line["stage"]),
            Text(_bar(line["share"]), style=colour),
            duration(line["duration_ns"]),
            share(line["share"]),
            duration(line["ttft_duration_ns"]) if line["ttft_duration_ns"] else "-",
            "from the engine's attributes" if line["derived"] else "",
        )
    return table


def _bar(part: float) -> str:
    """Eighths of a cell, so that small shares still differ; anything above zero is seen."""
    eighths = max(1, round(part * _BAR * 8)) if part > 0 else 0
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _critical_path(path: list[dict[str, Any]], start_ns: int, total: int) -> RenderableType:
    """The segments in time order; of a long path the longest ones, still in time order."""
    from rich.table import Table

    from tailtrace.cli.formats import duration, plain

    longest = sorted(path, key=lambda segment: -segment["duration_ns"])[:_PATH_LINES]
    kept = {id(segment) for segment in longest}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("critical path", no_wrap=True)
    table.add_column("for", justify="right", no_wrap=True)
    table.add_column("span", no_wrap=True)
    for segment in path:
        if id(segment) in kept:
            edge = f" {plain(segment['edge'])}" if segment["edge"] else ""
            table.add_row(
                "+" + duration(int(segment["start_unix_ns"]) - start_ns),
                plain(segment["stage"]),
                duration(segment["duration_ns"]),
                f"{plain(segment['name'])}  {plain(segment['service'])}{edge}",
            )
    if total > len(longest):
        table.caption = f"{total - len(longest)} shorter segments are not shown"
    return table
