"""`tailtrace root-cause`: which service on the critical paths gained the time."""

from __future__ import annotations

import typer

from tailtrace.cli import options
from tailtrace.cli.answer import LINES, At, Filter, Range, Service, Since, Until, ask, columns, printed, show, signed


def root_cause(
    service: Service, at: At = None, range: Range = None, since: Since = None, until: Until = None,
    filter: Filter = [], url: options.Url = options.DEFAULT_URL,  # noqa: B006
    token: options.ClientToken = "", as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Rank the services behind a service by the time that they and their network edges gained.

    The range is held against as long a one before it; with --at, what came after a time against what came before.
    """
    answer = ask(
        url, token, "root-cause", service=service, at=at, range=range, since=since, until=until, filter=filter
    )  # fmt: skip
    if printed(answer, as_json):
        return
    from tailtrace.cli.formats import plain, share

    if answer["reason"]:
        typer.echo(f"{plain(service)}: {plain(answer['reason'])}")
        return
    gained = [suspect for suspect in answer["suspects"] if suspect["extra_ns"] > 0]
    typer.echo(
        f"{answer['requests']} requests of {plain(service)} against {answer['reference_requests']} before: "
        + (f"most of the time was gained by {plain(gained[0]['service'])}" if gained else "no service gained time")
    )
    table = columns(("service", "left"), ("a request", "right"), ("of what any gained", "right"))
    for suspect in answer["suspects"][:LINES]:
        table.add_row(plain(suspect["service"]), signed(suspect["extra_ns"]), share(suspect["share"]))
    show(table)
