"""`tailtrace attribution | compare | slow | whatif | replicas | tokens`: the statistical answers, to be read in ten
seconds.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tailtrace.cli import options
from tailtrace.cli.answer import (
    LINES,
    Filter,
    Metric,
    Quantile,
    Range,
    Service,
    Since,
    Until,
    ask,
    columns,
    percentile,
    printed,
    show,
    signed,
)


def attribution(
    service: Service, metric: Metric = "duration", q: Quantile = 0.95, range: Range = None, since: Since = None,
    until: Until = None, filter: Filter = [], url: options.Url = options.DEFAULT_URL,  # noqa: B006
    token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show which stage makes a percentile, with intervals."""
    answer = ask(
        url, token, "attribution", service=service, metric=metric, q=q, range=range, since=since, until=until,
        filter=filter,
    )  # fmt: skip
    if printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["value_ns"] is None:
        typer.echo(f"{plain(service)}: {plain(answer['no_interval'])}")
        return
    few = "  (too few requests for a number: read the interval)" if answer["hollow"] else ""
    typer.echo(
        f"{percentile(metric, q)} of {plain(service)} is {duration(answer['value_ns'])}"
        f"  [{duration(answer['low_ns'])} to {duration(answer['high_ns'])}], {answer['n']} requests{few}"
    )
    table = columns(("stage", "left"), ("time", "right"), ("share", "right"), ("95 % interval", "left"))
    for part in sorted(answer["stages"], key=lambda part: -part["duration_ns"])[:LINES]:
        interval = "" if part["low_share"] is None else f"{share(part['low_share'])} to {share(part['high_share'])}"
        table.add_row(plain(part["stage"]), duration(part["duration_ns"]), share(part["share"]), interval)
    show(table)
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
    answer = ask(
        url, token, "compare", service=service, by=by, a=a, b=b, at=at, range=range, since=since, until=until,
        filter=filter,
    )  # fmt: skip
    if printed(answer, as_json):
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
    table = columns(
        ("", "left"), ("A", "right"), ("B", "right"), ("change", "right"), ("traffic", "right"), ("service", "right"),
        ("most of it", "left"),
    )  # fmt: skip
    for change in answer["changes"]:
        top = [f"{plain(s['name'])} {signed(s['change_ns'])}" for s in change["stages"][:2] if s["change_ns"]]
        note = "  few requests" if change["hollow"] else "  traffic hides it" if change["simpson"] else ""
        table.add_row(
            percentile(change["metric"], change["q"]), duration(change["a_ns"]), duration(change["b_ns"]),
            signed(change["change_ns"]), signed(sum(term["change_ns"] for term in change["traffic"])),
            signed(change["within_ns"]), ", ".join(top) + note,
        )  # fmt: skip
    show(table)


def slow(
    service: Service, metric: Metric = "duration", q: Quantile = 0.95, range: Range = None, since: Since = None,
    until: Until = None, filter: Filter = [], url: options.Url = options.DEFAULT_URL,  # noqa: B006
    token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show what slow requests have in common: stages and attributes that differ from the rest."""
    answer = ask(
        url, token, "slow", service=service, metric=metric, q=q, range=range, since=since, until=until, filter=filter
    )
    if printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["reason"]:
        typer.echo(f"{plain(service)}: {plain(answer['reason'])}")
        return
    typer.echo(
        f"{answer['slow']} requests of {duration(answer['threshold_ns'])} and more, {answer['rest']} others;"
        f" {duration(answer['extra_ns'])} more on average"
    )
    stages = columns(("stage", "left"), ("slow", "right"), ("rest", "right"), ("of the extra", "right"))
    for stage in [stage for stage in answer["stages"] if stage["extra_ns"] > 0][:5]:
        stages.add_row(
            plain(stage["stage"]), duration(stage["slow_ns"]), duration(stage["rest_ns"]), share(stage["share"])
        )
    show(stages)
    clear = [each for each in answer["attributes"] if each["clear"]][:LINES]
    if not clear:
        typer.echo("no attribute differs beyond chance")
        return
    table = columns(("attribute", "left"), ("slow", "right"), ("rest", "right"), ("effect, -1 to 1", "right"))
    for each in clear:
        label = f"{plain(each['name'])} {plain(each['value'])}".strip()
        values = [f"{each[side]:.0f}" if not each["value"] else share(each[side]) for side in ("slow", "rest")]
        table.add_row(label, *values, f"{each['delta']:+.2f} [{each['low']:+.2f} to {each['high']:+.2f}]")
    show(table)


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
    answer = ask(
        url, token, "whatif", service=service, stage=stage, replicas=replicas, startup=startup, rate=rate, range=range,
        since=since, until=until, filter=filter,
    )  # fmt: skip
    if printed(answer, as_json):
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
    table = columns(("", "left"), ("now", "right"), ("then", "right"), ("change", "right"), ("queue left out", "right"))
    for each in answer["predictions"]:
        change = each["predicted_ns"] - each["now_ns"]
        table.add_row(
            percentile(each["metric"], each["q"]) + (" (few requests)" if each["hollow"] else ""),
            duration(each["now_ns"]), duration(each["predicted_ns"]), signed(change), duration(each["retime_ns"]),
        )  # fmt: skip
    show(table)
    if answer["base_error"] is not None:
        typer.echo(f"the replay of the service as it is misses P95 inside the engine by {share(answer['base_error'])}")
    for assumption in answer["assumptions"]:
        typer.echo(f"assumed: {plain(assumption)}")


def replicas(
    service: Service, range: Range = None, since: Since = None, until: Until = None, filter: Filter = [],  # noqa: B006
    url: options.Url = options.DEFAULT_URL, token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Show how evenly replicas are loaded, by work, and how much more they could take."""
    answer = ask(url, token, "replicas", service=service, range=range, since=since, until=until, filter=filter)
    if printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["reason"]:
        typer.echo(f"{plain(service)}: {plain(answer['reason'])}")
        return
    typer.echo(f"load {share(answer['load'])}; the busiest replica has {answer['imbalance']:.2f} times the mean work")
    table = columns(
        ("replica", "left"), ("requests", "right"), ("work", "right"), ("busy", "right"), ("queued tokens", "right"),
        ("queue P95", "right"), ("steps take", "right"),
    )  # fmt: skip
    for each in answer["replicas"]:
        table.add_row(
            plain(each["replica"]), str(each["requests"]), share(each["work_share"]), share(each["busy"]),
            f"{each['queued_tokens']:.0f}", duration(each["queue_p95_ns"]), f"{each['speed']:.2f} x",
        )  # fmt: skip
    show(table)
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
    answer = ask(url, token, "tokens", service=service, range=range, since=since, until=until, filter=filter)
    if printed(answer, as_json):
        return
    from tailtrace.cli.formats import duration, plain, share

    if answer["first_share"] is None:
        typer.echo(f"{plain(service)}: no request in this range has a known first token")
        return
    first = answer["first_share"]
    typer.echo(f"{share(first)} of P95 lies before the first token, {share(1 - first)} after it")
    table = columns(("", "left"), ("value", "right"), ("stages", "left"))
    for each in [*answer["ttft"], *answer["tpot"]]:
        top = sorted(each["stages"], key=lambda part: -part["duration_ns"])[:4]
        table.add_row(
            percentile(each["metric"], each["q"]), duration(each["value_ns"]),
            ", ".join(f"{plain(part['stage'])} {share(part['share'])}" for part in top),
        )  # fmt: skip
    show(table)
    if answer["gaps"]:
        gaps = ", ".join(f"P{100 * gap['q']:g} {duration(gap['value_ns'])}" for gap in answer["gaps"])
        typer.echo(f"between chunks: {gaps}; {share(answer['stalled'])} of requests stall for a second or more")
