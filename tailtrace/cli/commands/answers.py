"""`tailtrace attribution | compare | slow | whatif | replicas | tokens`: the statistical answers, to be read in ten
seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from rich.table import Table

Service = Annotated[str, typer.Argument(help="The service, as `tailtrace requests` prints it.")]
Range = Annotated[str | None, typer.Option("--range", help="Length back from the newest data, like 15m or 6h.")]
Since = Annotated[str | None, typer.Option("--since", help="ISO time or Unix nanoseconds.")]
Until = Annotated[str | None, typer.Option("--until", help="ISO time or Unix nanoseconds.")]
Filter = Annotated[list[str], typer.Option("--filter", help="ATTRIBUTE=VALUE, like model=llama; may be repeated.")]
Metric = Annotated[str, typer.Option("--metric", help="duration, ttft or tpot.")]
Quantile = Annotated[float, typer.Option("--q", help="Between 0 and 1.")]
_LINES = 8


def attribution(
    service: Service, metric: Metric = "duration", q: Quantile = 0.95, range: Range = None, since: Since = None,
    until: Until = None, filter: Filter = [], url: options.Url = options.DEFAULT_URL,  # noqa: B006
    token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show which stage makes a percentile, with intervals."""
    answer = _get(
        url, token, "attribution", service=service, metric=metric, q=q, range=range, since=since, until=until,
        filter=filter,
    )  # fmt: skip
    if _printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["value_ns"] is None:
        typer.echo(f"{plain(service)}: {plain(answer['no_interval'])}")
        return
    few = "  (too few requests for a number: read the interval)" if answer["hollow"] else ""
    typer.echo(
        f"{_name(metric, q)} of {plain(service)} is {duration(answer['value_ns'])}"
        f"  [{duration(answer['low_ns'])} to {duration(answer['high_ns'])}], {answer['n']} requests{few}"
    )
    table = _table(("stage", "left"), ("time", "right"), ("share", "right"), ("95 % interval", "left"))
    for part in sorted(answer["stages"], key=lambda part: -part["duration_ns"])[:_LINES]:
        interval = "" if part["low_share"] is None else f"{share(part['low_share'])} to {share(part['high_share'])}"
        table.add_row(plain(part["stage"]), duration(part["duration_ns"]), share(part["share"]), interval)
    _print(table)
    if answer["no_interval"]:
        typer.echo(f"no interval: {plain(answer['no_interval'])}")


def compare(
    service: Service,
    by: Annotated[str | None, typer.Option("--by", help="An attribute to compare two values of: version, ...")] = None,
    a: Annotated[str | None, typer.Option("--a", help="Value of A, with --by.")] = None,
    b: Annotated[str | None, typer.Option("--b", help="Value of B, with --by.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="A is the range before this time, B after it.")] = None,
    range: Range = None, since: Since = None, until: Until = None, filter: Filter = [],  # noqa: B006
    url: options.Url = options.DEFAULT_URL, token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Compare A with B: what changed a percentile, the traffic or the service, and which stage.

    Without --by and --at, B is the range and A as long a one just before it.
    """
    answer = _get(
        url, token, "compare", service=service, by=by, a=a, b=b, at=at, range=range, since=since, until=until,
        filter=filter,
    )  # fmt: skip
    if _printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    for condition in answer["conditions"]:
        sides = [
            ", ".join(f"{plain(value['value']) or '(none)'} {share(value['share'])}" for value in condition[side][:3])
            for side in ("a", "b")
        ]
        typer.echo(f"differs: {plain(condition['name'])}: {sides[0]} -> {sides[1]}")
    typer.echo(
        f"A: {answer['a']['n']} requests, B: {answer['b']['n']}; {share(answer['common_a'])} and"
        f" {share(answer['common_b'])} of them in {answer['strata']} kinds of traffic that both have"
    )
    table = _table(
        ("", "left"), ("A", "right"), ("B", "right"), ("change", "right"), ("traffic", "right"), ("service", "right"),
        ("most of it", "left"),
    )  # fmt: skip
    for change in answer["changes"]:
        top = [f"{plain(s['name'])} {_signed(s['change_ns'])}" for s in change["stages"][:2] if s["change_ns"]]
        note = "  few requests" if change["hollow"] else "  traffic hides it" if change["simpson"] else ""
        table.add_row(
            _name(change["metric"], change["q"]), duration(change["a_ns"]), duration(change["b_ns"]),
            _signed(change["change_ns"]), _signed(sum(term["change_ns"] for term in change["traffic"])),
            _signed(change["within_ns"]), ", ".join(top) + note,
        )  # fmt: skip
    _print(table)


def slow(
    service: Service, metric: Metric = "duration", q: Quantile = 0.95, range: Range = None, since: Since = None,
    until: Until = None, filter: Filter = [], url: options.Url = options.DEFAULT_URL,  # noqa: B006
    token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show what slow requests have in common: stages and attributes that differ from the rest."""
    answer = _get(
        url, token, "slow", service=service, metric=metric, q=q, range=range, since=since, until=until, filter=filter
    )
    if _printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["reason"]:
        typer.echo(f"{plain(service)}: {plain(answer['reason'])}")
        return
    typer.echo(
        f"{answer['slow']} requests of {duration(answer['threshold_ns'])} and more, {answer['rest']} others;"
        f" {duration(answer['extra_ns'])} more on average"
    )
    stages = _table(("stage", "left"), ("slow", "right"), ("rest", "right"), ("of the extra", "right"))
    for stage in [stage for stage in answer["stages"] if stage["extra_ns"] > 0][:5]:
        stages.add_row(
            plain(stage["stage"]), duration(stage["slow_ns"]), duration(stage["rest_ns"]), share(stage["share"])
        )
    _print(stages)
    clear = [each for each in answer["attributes"] if each["clear"]][:_LINES]
    if not clear:
        typer.echo("no attribute differs beyond chance")
        return
    table = _table(("attribute", "left"), ("slow", "right"), ("rest", "right"), ("effect, -1 to 1", "right"))
    for each in clear:
        label = f"{plain(each['name'])} {plain(each['value'])}".strip()
        values = [f"{each[side]:.0f}" if not each["value"] else share(each[side]) for side in ("slow", "rest")]
        table.add_row(label, *values, f"{each['delta']:+.2f} [{each['low']:+.2f} to {each['high']:+.2f}]")
    _print(table)


def whatif(
    service: Service,
    stage: Annotated[list[str], typer.Option("--stage", help="STAGE=FACTOR: prefill=0.5, queue=0.")] = [],  # noqa: B006
    replicas: Annotated[int, typer.Option("--replicas", help="More replicas (or less: -1).")] = 0,
    startup: Annotated[str | None, typer.Option("--startup", help="Until they are ready, like 120s.")] = None,
    rate: Annotated[float, typer.Option("--rate", help="Times as many arrivals.")] = 1.0,
    range: Range = None, since: Since = None, until: Until = None, filter: Filter = [],  # noqa: B006
    url: options.Url = options.DEFAULT_URL, token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Predict percentiles after a change: the critical path retimed, the queue replayed with observed arrivals."""
    answer = _get(
        url, token, "whatif", service=service, stage=stage, replicas=replicas, startup=startup, rate=rate, range=range,
        since=since, until=until, filter=filter,
    )  # fmt: skip
    if _printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["method"] == "replay":
        growing = "" if answer["stable"] else ": the queue grows as long as this lasts"
        typer.echo(
            f"{answer['n']} requests replayed on {answer['replicas_then']} replicas (now {answer['replicas_now']}),"
            f" load {share(answer['load_now'])} -> {share(answer['load_then'])}{growing}"
        )
    else:
        typer.echo(f"{answer['n']} requests; the queue was not replayed: {plain(answer['reason'])}")
    table = _table(("", "left"), ("now", "right"), ("then", "right"), ("change", "right"), ("queue left out", "right"))
    for each in answer["predictions"]:
        change = each["predicted_ns"] - each["now_ns"]
        table.add_row(
            _name(each["metric"], each["q"]) + (" (few requests)" if each["hollow"] else ""), duration(each["now_ns"]),
            duration(each["predicted_ns"]), _signed(change), duration(each["retime_ns"]),
        )  # fmt: skip
    _print(table)
    if answer["base_error"] is not None:
        typer.echo(f"the replay of the service as it is misses P95 inside the engine by {share(answer['base_error'])}")
    for assumption in answer["assumptions"]:
        typer.echo(f"assumed: {plain(assumption)}")


def replicas(
    service: Service, range: Range = None, since: Since = None, until: Until = None, filter: Filter = [],  # noqa: B006
    url: options.Url = options.DEFAULT_URL, token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show how evenly replicas are loaded, by work, and how much more they could take."""
    answer = _get(url, token, "replicas", service=service, range=range, since=since, until=until, filter=filter)
    if _printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["reason"]:
        typer.echo(f"{plain(service)}: {plain(answer['reason'])}")
        return
    typer.echo(f"load {share(answer['load'])}; the busiest replica has {answer['imbalance']:.2f} times the mean work")
    table = _table(
        ("replica", "left"), ("requests", "right"), ("work", "right"), ("busy", "right"), ("queued tokens", "right"),
        ("queue P95", "right"), ("steps take", "right"),
    )  # fmt: skip
    for each in answer["replicas"]:
        table.add_row(
            plain(each["replica"]), str(each["requests"]), share(each["work_share"]), share(each["busy"]),
            f"{each['queued_tokens']:.0f}", duration(each["queue_p95_ns"]), f"{each['speed']:.2f} x",
        )  # fmt: skip
    _print(table)
    capacity = answer["capacity"]
    if capacity["factor"] is None:
        typer.echo("P95 does not double within 16 times the arrivals")
    else:
        typer.echo(
            f"until P95 doubles: {capacity['per_second_left']:.2f} requests/s and"
            f" {capacity['tokens_per_second_left']:.0f} tokens/s more ({capacity['factor']:.2f} times now)"
        )


def tokens(
    service: Service, range: Range = None, since: Since = None, until: Until = None, filter: Filter = [],  # noqa: B006
    url: options.Url = options.DEFAULT_URL, token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show whether the first token is slow or the later ones, and which stages make either."""
    answer = _get(url, token, "tokens", service=service, range=range, since=since, until=until, filter=filter)
    if _printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["first_share"] is None:
        typer.echo(f"{plain(service)}: no request in this range has a known first token")
        return
    first = answer["first_share"]
    typer.echo(f"{share(first)} of P95 lies before the first token, {share(1 - first)} after it")
    table = _table(("", "left"), ("value", "right"), ("stages", "left"))
    for each in [*answer["ttft"], *answer["tpot"]]:
        top = sorted(each["stages"], key=lambda part: -part["duration_ns"])[:4]
        table.add_row(
            _name(each["metric"], each["q"]), duration(each["value_ns"]),
            ", ".join(f"{plain(part['stage'])} {share(part['share'])}" for part in top),
        )  # fmt: skip
    _print(table)
    if answer["gaps"]:
        gaps = ", ".join(f"P{100 * gap['q']:g} {duration(gap['value_ns'])}" for gap in answer["gaps"])
        typer.echo(f"between chunks: {gaps}; {share(answer['stalled'])} of requests stall for a second or more")


def _get(url: str, token: str, path: str, **parameters: Any) -> Any:
    from tailtrace.cli.client import ApiClient

    return ApiClient(url, token).get(path, **parameters)


def _printed(answer: Any, as_json: bool) -> bool:
    import json

    if as_json:
        typer.echo(json.dumps(answer))
    return as_json


def _name(metric: str, q: float) -> str:
    return f"{'' if metric == 'duration' else metric.upper() + ' '}P{100 * q:g}"


def _signed(ns: int) -> str:
    from tailtrace.cli.formats import duration

    return f"{'+' if ns >= 0 else '-'}{duration(abs(ns))}"


def _table(*columns: tuple[str, str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def _print(table: Table) -> None:
    from tailtrace.cli.terminal import console

    console().print(table)
