"""`tailtrace gpu-idle`: what the GPUs of a service were busy with or waited for, as totals and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from tailtrace.cli import options
from tailtrace.cli.answer import Range, Service, Since, Until, ask, columns, printed, show, words

if TYPE_CHECKING:
    from rich.text import Text

_BARS: Final = "▁▂▃▄▅▆▇█"
_GPUS: Final = 16
_COLOURS: Final = {"busy": "green", "idle": "red", "no_data": "dim"}
_MARKS: Final = "abcdefghijklmnopqrstuvwxyz"


def gpu_idle(
    service: Service, range: Range = None, since: Since = None, until: Until = None,
    url: options.Url = options.DEFAULT_URL, token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show every second of every GPU: busy and bound by what, or idle and waiting for what."""
    answer = ask(url, token, "gpu-idle", service=service, range=range, since=since, until=until)
    if printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if not answer["gpus"]:
        typer.echo(f"{plain(service)}: no GPU is known to have served it in this range")
        return
    length = int(answer["until_unix_ns"]) - int(answer["since_unix_ns"])
    parts = {state: sum(t["share"] for t in answer["totals"] if t["state"] == state) for state in _COLOURS}
    typer.echo(
        f"{answer['gpus']} GPUs over {duration(length)}: {share(parts['busy'])} busy, {share(parts['idle'])} idle"
        + (f", {share(parts['no_data'])} without data" if parts["no_data"] else "")
    )
    marks = _marks(answer["totals"])
    table = columns(("", "left"), ("GPU time", "right"), ("share", "right"), ("", "left"))
    for total in answer["totals"]:
        word = {"busy": "busy, bound by", "idle": "idle, waiting for", "no_data": "no data"}[total["state"]]
        what = "" if total["state"] == "no_data" else f"{word}: {words(total['cause'])}"
        mark = marks.get((total["state"], total["cause"]), "")
        table.add_row(mark, duration(total["ns"]), share(total["share"]), what or word)
    show(table)
    lanes = columns(("GPU", "left"), ("replica", "left"), ("over time", "left"))
    for lane in answer["lanes"][:_GPUS]:
        bars, letters = _lane(lane["cells"], marks)
        lanes.add_row(plain(lane["gpu"])[:12], plain(lane["replica"])[:16], bars)
        lanes.add_row("", "", letters)
    show(lanes)
    if len(answer["lanes"]) > _GPUS:
        typer.echo(f"{len(answer['lanes']) - _GPUS} more GPUs are not drawn")
    if answer["missing"]:
        typer.echo("missing: " + ", ".join(plain(one) for one in answer["missing"]))


def _marks(totals: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """A letter for each reason to be idle; what a GPU is busy with is read from the table."""
    idle = [("idle", total["cause"]) for total in totals if total["state"] == "idle"]
    return dict(zip(idle, _MARKS, strict=False))


def _lane(cells: list[dict[str, Any]], marks: dict[tuple[str, str], str]) -> tuple[Text, Text]:
    """How busy each cell was, and below it what most of an idle one waited for."""
    from rich.text import Text

    bars, letters = Text(), Text()
    for cell in cells:
        busy = cell["busy"]
        bar = "?" if busy is None else _BARS[min(len(_BARS) - 1, int(busy * len(_BARS)))]
        bars.append(bar, style=_COLOURS[cell["state"]])
        letters.append(marks.get((cell["state"], cell["cause"]), " "), style="dim")
    return bars, letters
