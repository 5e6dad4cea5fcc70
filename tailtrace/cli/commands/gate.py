"""`tailtrace gate`: a candidate against a baseline, as an exit code."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tailtrace.cli import options

PASS, FAIL, UNKNOWN = 0, 1, 5


def gate(
    baseline: Annotated[str, typer.Option("--baseline", help="ATTRIBUTE=VALUE, like version=1.4.2.")],
    candidate: Annotated[str, typer.Option("--candidate", help="ATTRIBUTE=VALUE of the same attribute.")],
    service: Annotated[str, typer.Option("--service", help="The service.")],
    metric: Annotated[str, typer.Option("--metric", help="duration or ttft.")] = "duration",
    q: Annotated[float, typer.Option("--q", help="0.5, 0.95 or 0.99.")] = 0.95,
    allow: Annotated[float, typer.Option("--allow", help="How much slower is fine: 0.05 = 5 %.")] = 0.05,
    range: Annotated[str | None, typer.Option("--range", help="Length back from the newest data.")] = None,
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
    as_json: options.AsJson = False,
) -> None:
    """Judge stored runs for CI: exit code 0 no slower than allowed, 1 slower, 5 cannot tell (too few requests).

    What counts is like traffic served differently; a candidate that got other traffic is not blamed for it.
    """
    import json

    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.formats import duration, plain
    from tailtrace.errors import ConfigError

    name, equals, a = baseline.partition("=")
    other, _, b = candidate.partition("=")
    if not equals or name != other:
        raise ConfigError(f"expected ATTRIBUTE=VALUE twice with one attribute; got {baseline!r} and {candidate!r}")
    answer = ApiClient(url, token).get("compare", service=service, by=name, a=a, b=b, range=range)
    change = next((each for each in answer["changes"] if each["metric"] == metric and each["q"] == q), None)
    code, words = verdict(change, allow)
    if as_json:
        typer.echo(json.dumps({"verdict": words, "exit_code": code, "change": change}))
        raise typer.Exit(code)
    typer.echo(f"{words}: {name} {plain(a)} (n = {answer['a']['n']}) to {plain(b)} (n = {answer['b']['n']})")
    if change:
        typer.echo(
            f"P{100 * q:g} {metric} {duration(change['a_ns'])} to {duration(change['b_ns'])}; "
            f"like traffic {duration(abs(change['within_ns']))} {'slower' if change['within_ns'] > 0 else 'faster'}"
        )
        for stage in [each for each in change["stages"] if each["change_ns"] > 0][:3] if code == FAIL else []:
            typer.echo(f"  {stage['name']} +{duration(stage['change_ns'])}")
    raise typer.Exit(code)


def verdict(change: dict[str, Any] | None, allow: float) -> tuple[int, str]:
    """Exit code and word. Slower is what is surely slower; fine is what is surely not much slower; else unknown."""
    if change is None or change["hollow"]:
        return UNKNOWN, "too few requests"
    most = allow * change["a_ns"]
    if change["within_low_ns"] > most or (change["within_low_ns"] > 0 and change["within_ns"] > most):
        return FAIL, "slower"
    if change["within_high_ns"] <= most or change["within_ns"] <= most:
        return PASS, "no slower than allowed"
    return UNKNOWN, "cannot tell yet: more requests are needed"
