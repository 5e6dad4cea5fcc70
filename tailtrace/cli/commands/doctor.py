"""`tailtrace doctor`: is the installation whole, and does a running server do its work?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrace.cli.checks.finding import Finding


def doctor(
    url: options.Url = options.DEFAULT_URL,
    endpoint: options.Endpoint = options.DEFAULT_ENDPOINT,
    token: options.ClientToken = "",
) -> None:
    """Check this installation and a running server. One span of service `tailtrace-doctor` is sent and found again."""
    from itertools import chain

    from tailtrace.cli.checks import installation, server

    healthy = True
    for check in chain(installation.CHECKS, server.checks(url, endpoint, token)):
        finding = _found(check)
        healthy = healthy and finding.ok
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name:<13} {finding.told}")
        if finding.remedy:
            typer.echo(f"      {'':<13} -> {finding.remedy}")
    raise typer.Exit(0 if healthy else 1)


def _found(check: Callable[[], Finding]) -> Finding:
    """A check's finding; one that fails itself is a finding too, and the others still run."""
    from tailtrace.cli.checks.finding import Finding

    try:
        return check()
    except Exception as error:
        return Finding("a check", False, f"failed itself: {type(error).__name__}: {error}", "please report it")
