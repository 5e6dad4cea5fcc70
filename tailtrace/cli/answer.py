"""What the commands about one answer of the API share: their arguments, the question, and how figures are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from rich.table import Table

Service = Annotated[str, typer.Argument(help="The service, as `tailtrace requests` prints it.")]
Range = Annotated[str | None, typer.Option("--range", help="Length back from the newest data, like 15m or 6h.")]
Since = Annotated[str | None, typer.Option("--since", help="ISO time or Unix nanoseconds.")]
Until = Annotated[str | None, typer.Option("--until", help="ISO time or Unix nanoseconds.")]
At = Annotated[str | None, typer.Option("--at", help="A is the range before this time, B after it.")]
Filter = Annotated[list[str], typer.Option("--filter", help="ATTRIBUTE=VALUE, like model=llama; may be repeated.")]
Metric = Annotated[str, typer.Option("--metric", help="duration, ttft or tpot.")]
Quantile = Annotated[float, typer.Option("--q", help="Between 0 and 1.")]
LINES: Final = 8


def ask(url: str, token: str, path: str, **parameters: Any) -> Any:
    """The API's answer; parameters that are None are left out."""
    from tailtrace.cli.client import ApiClient

    return ApiClient(url, token).get(path, **parameters)


def printed(answer: Any, as_json: bool) -> bool:
    """Prints the answer as it came where JSON is wanted, and says whether it did."""
    import json

    if as_json:
        typer.echo(json.dumps(answer))
    return as_json


def percentile(metric: str, q: float) -> str:
    """`P95`, `TTFT P99`."""
    return f"{'' if metric == 'duration' else metric.upper() + ' '}P{100 * q:g}"


def signed(ns: int) -> str:
    """A difference of durations with its sign."""
    from tailtrace.cli.formats import duration

    return f"{'+' if ns >= 0 else '-'}{duration(abs(ns))}"


def words(cause: str) -> str:
    """A cause in words; one that this version does not know stays as it came, made inert."""
    from tailtrace.causes import BY_CODE
    from tailtrace.cli.formats import plain

    return BY_CODE[cause].en if cause in BY_CODE else plain(cause)


def columns(*named: tuple[str, str]) -> Table:
    """An empty table of (name, justify) columns."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in named:
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def show(table: Table) -> None:
    """Prints a table."""
    from tailtrace.cli.terminal import console

    console().print(table)
