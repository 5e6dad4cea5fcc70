"""`tailtrace load`: recorded OTLP into a running server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tailtrace.cli.recordings import Body

_AT_ONCE = 4
_UNITS = {"traces": "spans", "metrics": "metrics", "logs": "log records"}


def load(
    files: Annotated[
        list[Path], typer.Argument(help="Recorded OTLP: protobuf or JSON bodies, journal segments; .gz too.")
    ],
    rebase: Annotated[bool, typer.Option("--rebase", help="Move all times so that the recording ends now.")] = False,
    endpoint: options.Endpoint = options.DEFAULT_ENDPOINT,
    token: options.ClientToken = "",
) -> None:
    """Send recorded OTLP files through the server's OTLP/HTTP door. Loading a file again changes nothing."""
    import time
    from collections import Counter
    from concurrent.futures import ThreadPoolExecutor

    from tailtrace.cli.otlp_sender import OtlpSender, Receipt

    shift_ns = time.time_ns() - _newest_unix_ns(files) if rebase else 0
    sender = OtlpSender(endpoint, token, connections=_AT_ONCE)

    def send(body: Body) -> tuple[str, Receipt]:
        body = body.shifted(shift_ns).backfilled() if rebase else body
        return body.signal, sender.send(body.signal, body.encode(), body.items(), body.content_type)

    accepted: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for batch in _batches(_bodies(files), 16 * _AT_ONCE):
            for signal, receipt in pool.map(send, batch):
                accepted[signal] += receipt.accepted
                rejected[signal] += receipt.rejected
                if receipt.rejected:
                    reasons[receipt.reason] += receipt.rejected
    for signal in sorted(accepted, key=list(_UNITS).index):
        typer.echo(f"{accepted[signal]} {_UNITS[signal]} accepted, {rejected[signal]} rejected")
    for reason, count in reasons.most_common(5):
        typer.echo(f"  {count} rejected: {reason}", err=True)
    raise typer.Exit(1 if reasons else 0)


def _bodies(files: Iterable[Path]) -> Iterator[Body]:
    from tailtrace.cli.recordings import read_recording

    for path in files:
        yield from read_recording(path)


def _newest_unix_ns(files: Iterable[Path]) -> int:
    from tailtrace.errors import ConfigError

    newest = max((body.newest_unix_ns() for body in _bodies(files)), default=0)
    if not newest:
        raise ConfigError("--rebase: the recording holds no time to count from")
    return newest


def _batches(bodies: Iterator[Body], size: int) -> Iterator[list[Body]]:
    """A few bodies at a time, so that a large recording is not held in memory."""
    from itertools import islice

    while batch := list(islice(bodies, size)):
        yield batch
