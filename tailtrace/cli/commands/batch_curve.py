"""`tailtrace batch-curve`: step time and tokens per second by batch size, the knee marked."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from tailtrace.cli import options
from tailtrace.cli.answer import Range, Service, Since, Until, ask, columns, printed, show

_LINES: Final = 12
_BAR: Final = 24


def batch_curve(
    service: Service,
    replica: Annotated[str, typer.Option("--replica", help="One replica (default: all of the service).")] = "",
    range: Range = None, since: Since = None, until: Until = None,
    url: options.Url = options.DEFAULT_URL, token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show what a larger batch buys: step time, tokens/s and waiting by batch size, and where the curve bends."""
    answer = ask(
        url, token, "batch-curve", service=service, replica=replica or None, range=range, since=since, until=until
    )
    if printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if not answer["points"]:
        typer.echo(f"{plain(service)}: {plain(answer['reason'])}")
        return
    if answer["fixed_ns"] is not None:
        typer.echo(
            f"a decode step takes {duration(answer['fixed_ns'])} and {duration(answer['per_sequence_ns'])} a sequence;"
            f" {_knee(answer)}"
        )
    most = max(point["tokens_per_second"] for point in answer["points"])
    table = columns(
        ("batch", "right"), ("steps", "right"), ("step P50", "right"), ("P95", "right"), ("tokens/s", "right"),
        ("", "left"), ("waiting", "right"), ("KV used", "right"), ("", "left"),
    )  # fmt: skip
    for point in _spread(answer["points"]):
        table.add_row(
            str(point["batch"]), str(point["n"]), duration(point["step_p50_ns"]), duration(point["step_p95_ns"]),
            f"{point['tokens_per_second']:.0f}", "█" * max(1, round(_BAR * point["tokens_per_second"] / most)),
            f"{point['waiting']:.1f}", share(point["kv_usage"]), "<- knee" if point["batch"] == answer["knee"] else "",
        )  # fmt: skip
    show(table)
    typer.echo(
        f"{answer['steps']} steps, {answer['mixed_steps']} of them with prompts and not above;"
        f" in {share(answer['limited'])} requests were waiting"
    )


def _knee(answer: dict[str, Any]) -> str:
    if answer["knee"] is None:
        return "the knee lies beyond what was seen: a larger batch still pays"
    most = answer["most_tokens_per_second"]
    return f"the knee is at {answer['knee']}: half of the {most:.0f} tokens/s that no batch could exceed"


def _spread(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most a dozen, evenly over the sizes, the first and the last among them."""
    if len(points) <= _LINES:
        return points
    return [points[round(k * (len(points) - 1) / (_LINES - 1))] for k in range(_LINES)]
