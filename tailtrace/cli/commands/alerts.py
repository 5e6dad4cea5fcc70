"""`tailtrace alerts`: what fires, what would have, and quiet for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from tailtrace.cli import options

app = typer.Typer(help="Alerts: list, mute, and rules held against history.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(help="Id of the alert, as `tailtrace alerts list` prints it.")]


@app.command("list")
def list_(
    state: Annotated[str, typer.Option("--state", help="open, acknowledged or resolved; all unless given.")] = "",
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
    as_json: options.AsJson = False,
) -> None:
    """List alerts, newest first, with what became of their messages."""
    import json

    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.formats import moment, plain

    answer = ApiClient(url, token).get("alerts", state=state or None)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    for alert in answer["alerts"]:
        ended = f" to {moment(alert['ended_unix_ns'])[:16]}" if alert["ended_unix_ns"] else ""
        typer.echo(f"{alert['id']}  {alert['state']:<12}  {moment(alert['opened_unix_ns'])[:16]}{ended}")
        typer.echo(f"  {plain(alert['summary'])}")
        for message in alert["messages"]:
            error = f": {plain(message['error'])}" if message["error"] else ""
            typer.echo(f"  {message['event']} to {plain(message['channel'])}: {message['state']}{error}")
    typer.echo(f"{answer['total']} alerts, times in UTC")


@app.command("test")
def replay(
    rule: Annotated[str, typer.Argument(help="Name of a rule.")],
    since: Annotated[str | None, typer.Option("--since", help="ISO time; a day before the end unless given.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="ISO time; the newest data unless given.")] = None,
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
    as_json: options.AsJson = False,
) -> None:
    """Replay a rule over stored history: when would it have fired? Nothing is sent."""
    import json
    from urllib.parse import urlencode

    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.formats import moment, plain

    query = urlencode({name: value for name, value in (("since", since), ("until", until)) if value})
    answer = ApiClient(url, token).post(f"rules/test?{query}", {"name": rule})
    if as_json:
        typer.echo(json.dumps(answer))
        return
    for fired in answer["fired"]:
        ended = moment(fired["until_unix_ns"])[:16] if fired["until_unix_ns"] else "on"
        typer.echo(f"{moment(fired['since_unix_ns'])[:16]} to {ended}  {plain(fired['summary'])}")
    span = f"{moment(answer['since_unix_ns'])[:16]} to {moment(answer['until_unix_ns'])[:16]} UTC"
    typer.echo(f"fired {len(answer['fired'])} times, {span}")


@app.command("send-test")
def send_test(
    channel: Annotated[str, typer.Argument(help="Name of a channel.")],
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
) -> None:
    """Send a test message through a channel: exit code 0 when it was taken, 1 when it was not."""
    from urllib.parse import quote

    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.formats import plain

    answer = ApiClient(url, token).post(f"channels/{quote(channel, safe='')}/test", {})
    typer.echo("delivered" if answer["delivered"] else f"not delivered: {plain(answer['error'] or 'no reason given')}")
    raise typer.Exit(0 if answer["delivered"] else 1)


@app.command("mute")
def mute(
    alert: Id,
    until: Annotated[str, typer.Option("--until", help="A span from now like 2h, or an ISO time.")] = "2h",
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
) -> None:
    """Say nothing more about an alert until then."""
    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.formats import moment

    answer = ApiClient(url, token).post(f"alerts/{alert}/mute", {"until": until})
    typer.echo(f"muted until {moment(answer['muted_until_unix_ns'])[:16]} UTC")


@app.command("acknowledge")
def acknowledge(alert: Id, url: options.Url = options.DEFAULT_URL, token: options.ClientToken = "") -> None:
    """Say that somebody looks at it."""
    from tailtrace.cli.client import ApiClient

    typer.echo(ApiClient(url, token).post(f"alerts/{alert}/acknowledge", {})["state"])
