"""`tailtrace lab`: the scenarios that the demo can play."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="An inference service in miniature with faults of known cause.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print names and titles as JSON.")] = False) -> None:
    """List the scenarios that `tailtrace demo --scenario NAME` plays."""
    import json

    from tailtrace.lab import list_scenarios
    from tailtrace.lab.scenario import REMOVED

    found = list_scenarios()
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, title in found.items():
        typer.echo(f"{name:22s} {title}")
    typer.echo("any of them with evidence taken away: NAME+" + ", NAME+".join(REMOVED))


@app.command("truth")
def truth_(
    scenario: Annotated[str, typer.Argument(help="Built-in scenario, or a TOML file.")],
    seed: Annotated[int, typer.Option("--seed", help="As the demo was given.")] = 1,
    hours: Annotated[float | None, typer.Option("--hours", help="Length of the run (default: the scenario's).")] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="When the run ends: ISO time or Unix nanoseconds (default: now).")
    ] = None,
) -> None:
    """Print as JSON what a scenario injects: cause, stage, service, replica, from when to when, and the time added.

    The added time is measured: the run is made once with each cause and once without.
    """
    import json
    import time

    from tailtrace.analytics.queries.window import parse_time
    from tailtrace.lab import Scenario, truth

    end = parse_time(until) if until else time.time_ns()
    made = truth(Scenario.load(scenario), end_unix_ns=end, hours=hours, seed=seed)
    typer.echo(json.dumps(made.as_json()))
