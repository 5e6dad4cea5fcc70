"""`tailtrace why`: the order of diagnosis for one service, each step ruled in or out with its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

_EVIDENCE = 3
_LOGS = 3
_LOG = 100  # characters of a line
_FIGURES = (
    ("input_tokens", 0),
    ("output_tokens", 0),
    ("output_tokens_per_second", 0),
    ("gpu_seconds_per_token", 3),
)
_MARKS = {"in": ("ruled in", "bold red"), "out": ("ruled out", "dim"), "no_data": ("no data", "yellow")}

_SLOW_PART = {
    "first_token": "the first token is slow",
    "tokens": "tokens after the first are slow",
    "both": "the first token and those after it are slow",
    "": "",
}


def why(
    service: Annotated[str, typer.Argument(help="A service name, as `tailtrace requests` prints them.")],
    since: Annotated[str, typer.Option("--since", help="15m, 6h back from the newest data, or an ISO time.")] = "15m",
    until: Annotated[str | None, typer.Option("--until", help="An ISO time (default: the newest data).")] = None,
    goal: Annotated[
        str | None, typer.Option("--goal", help="online or offline (default: by its streaming share).")
    ] = None,
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
    as_json: options.AsJson = False,
) -> None:
    """Say why a service is slower than before: queue, CPU, model, links, traffic, faults, in that order."""
    import json
    import re

    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.terminal import console

    span = {"range": since} if re.fullmatch(r"\d+[smhdw]", since) else {"since": since}
    client = ApiClient(url, token)
    answer = client.get("why", service=service, until=until, goal=goal, **span)
    idle = client.get("gpu-idle", service=service, until=until, **span)
    if as_json:
        typer.echo(json.dumps({"why": answer, "gpu_idle": {**idle, "stretches": None}}))
        return
    terminal = console()
    for part in _page(answer, idle):
        terminal.print(part)


def headline(verdict: dict[str, Any]) -> str:
    """Only what is sure is called the verdict; anything else is the likeliest of several."""
    sure = verdict["confidence"] == "high" or verdict["cause"] == "unknown"
    return f"{'verdict' if sure else 'no sure verdict; likeliest'}: {verdict_line(verdict)}"


def verdict_line(verdict: dict[str, Any]) -> str:
    """`high: GPU clocks are throttled (91 %), else answers are longer 8 %`."""
    from tailtrace.causes import BY_CODE
    from tailtrace.cli.formats import plain, share

    def words(code: str) -> str:
        return BY_CODE[code].en if code in BY_CODE else plain(code)

    text = f"{words(verdict['cause'])} ({share(verdict['share'])}, {verdict['confidence']} confidence)"
    if verdict["reason"]:
        text += f": {plain(verdict['reason'])}"
    others = ", ".join(f"{words(one['cause'])} {share(one['share'])}" for one in verdict["alternatives"])
    return f"{text}; else {others}" if others else text


def _page(answer: dict[str, Any], idle: dict[str, Any]) -> Iterator[RenderableType]:
    from rich.text import Text

    from tailtrace.cli.formats import duration, moment, plain, share

    now = answer["during"]
    yield Text(
        f"{plain(answer['service'])}  {moment(now['since_unix_ns'])} to {moment(now['until_unix_ns'])} UTC",
        style="bold",
    )
    yield Text(_goal(answer))
    yield _sides(answer)
    yield Text("")
    if answer["verdict"] is None:
        words = {"as_before": "not slower than before", "too_few": "too few requests to compare"}
        yield Text(words[answer["state"]], style="bold")
    else:
        part = _SLOW_PART[answer["slow_part"]]
        of = "before the first token" if answer["view"] == "first" else "a request"
        yield Text(f"slower by {duration(answer['excess_ns'])} {of} ({share(answer['relative'])}); {part}".rstrip("; "))
        yield Text(headline(answer["verdict"]), style="bold")
    yield Text("")
    for step in answer["steps"]:
        yield _step(step)
    yield from _logs(answer["clues"])
    yield Text("")
    yield _idle(idle)
    if answer["missing"]:
        yield Text("missing: " + ", ".join(plain(one) for one in answer["missing"]), style="yellow")


def _goal(answer: dict[str, Any]) -> str:
    """`goal online (guessed): mean TTFT ms 150 -> 900, ...`: the figures that matter to a service of this kind."""
    from tailtrace.cli.formats import plain

    told = ", ".join(
        f"{plain(one['metric'])} {_figure(one['before'])} -> {_figure(one['during'])}" for one in answer["figures"]
    )
    return f"goal {answer['goal']}{' (guessed)' if answer['goal_guessed'] else ''}: {told}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _sides(answer: dict[str, Any]) -> RenderableType:
    from rich.table import Table

    from tailtrace.cli.formats import duration

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "requests", "per s", "mean", "TTFT", "tokens in", "tokens out", "tokens/s", "GPU s/token"):
        table.add_column(name, justify="right" if name else "left")
    for name in ("before", "during"):
        side = answer[name]
        table.add_row(
            name,
            str(side["requests"]),
            f"{side['per_second']:.2f}",
            duration(side["mean_ns"]),
            duration(side["ttft_mean_ns"]),
            *(_number(side[key], digits) for key, digits in _FIGURES),
        )
    return table


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _step(step: dict[str, Any]) -> RenderableType:
    from rich.text import Text

    from tailtrace.causes import BY_CODE
    from tailtrace.cli.formats import plain, share

    word, style = _MARKS[step["state"]]
    text = Text(f"{word:10s}", style=style).append(f" {step['step']}")
    if step["state"] == "in" and step["causes"]:
        text.append(f"  {share(step['share'])}", style="bold")
    elif step["note"]:
        text.append(f"  ({plain(step['note'])})", style="dim")
    for cause in step["causes"][:2] if step["state"] == "in" else []:
        words = BY_CODE[cause["cause"]].en if cause["cause"] in BY_CODE else plain(cause["cause"])
        text.append(f"\n           {words}")
        text.append(_evidence(cause["evidence"]), style="dim")
    return text.append(_evidence(step["evidence"]), style="dim")


def _evidence(found: list[dict[str, Any]]) -> str:
    from tailtrace.cli.formats import plain

    lines = []
    for one in found[:_EVIDENCE]:
        limit = "" if one["threshold"] is None else f" against {one['threshold']:.3g}"
        lines.append(f"\n             {plain(one['metric'])}: {one['value']:.3g}{limit}")
    return "".join(lines)


def _logs(clues: dict[str, Any] | None) -> Iterator[RenderableType]:
    """The lines that the window has more of, most first."""
    from rich.text import Text

    from tailtrace.cli.formats import plain

    for line in clues["patterns"][:_LOGS] if clues and clues["findings"] else []:
        trace = f"  trace {plain(line['trace_id'])}" if line["trace_id"] else ""
        yield Text(
            f"             {line['n']} x {line['severity']} from {plain(line['service'])} (before: {line['before']}): "
            f"{plain(line['pattern'])[:_LOG]}{trace}",
            style="dim",
        )


def _idle(idle: dict[str, Any]) -> RenderableType:
    from rich.text import Text

    from tailtrace.causes import BY_CODE
    from tailtrace.cli.formats import share

    parts = []
    for total in idle["totals"][:4]:
        cause = BY_CODE[total["cause"]].en if total["cause"] in BY_CODE else total["cause"]
        word = {"busy": "busy", "idle": "idle", "no_data": "no data"}[total["state"]]
        parts.append(f"{share(total['share'])} {word} ({cause})")
    return Text(f"{idle['gpus']} GPUs: " + (", ".join(parts) if parts else "none seen"))
