"""`tailtrace export`: what is stored as OTLP files, or one trace for Perfetto."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from tailtrace.cli import options

if TYPE_CHECKING:
    from tailtrace.cli.recordings import Signal


class Form(StrEnum):
    """What is written."""

    JSON = "json"
    PROTOBUF = "protobuf"
    CHROME = "chrome"


class Stored(StrEnum):
    """What is read. Steps of engines travel as spans, and are stored apart from them."""

    TRACES = "traces"
    STEPS = "steps"
    METRICS = "metrics"
    LOGS = "logs"


def export(
    file: Annotated[Path, typer.Argument(help="File to write; `.gz` is compressed, `-` is stdout.")],
    signal: Annotated[list[Stored], typer.Option("--signal", help="What to write; repeatable.")] = [Stored.TRACES],  # noqa: B006
    trace: Annotated[
        list[str] | None, typer.Option("--trace", help="Id of a trace, and of log records; repeatable.")
    ] = None,
    service: Annotated[
        str, typer.Option("--service", help="Traces in which this service took part, else its own.")
    ] = "",
    since: Annotated[str, typer.Option("--since", help="15m, 6h, 7d back from now, or Unix ns: began after.")] = "1h",
    until: Annotated[str, typer.Option("--until", help="The same: began before. Default: now.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most traces, oldest first.")] = 10_000,
    form: Annotated[
        Form, typer.Option("--format", help="OTLP as json (a body a line) or protobuf; chrome: one trace for Perfetto.")
    ] = Form.JSON,
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
) -> None:
    """Write what is stored to a file that `tailtrace load` reads. Attributes come back as text, as they are stored."""
    import json
    from itertools import islice

    from tailtrace.cli import stored_logs, stored_metrics, stored_steps
    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.stored_pages import Selection
    from tailtrace.cli.stored_traces import bodies, count_spans, traces_between
    from tailtrace.errors import ConfigError, NotFound

    api = ApiClient(url, token)
    named = [_trace_id(each) for each in trace or ()]
    if form is Form.CHROME:
        if len(named) != 1:
            raise ConfigError("--format chrome writes one trace: give --trace once")
        events = api.get(f"requests/{named[0]}/chrome")
        _write(file, iter([json.dumps(events).encode()]))
        typer.echo(f"{events['otherData']['shown']} of {events['otherData']['total']} spans", err=True)
        return
    apart = [each.value for each in signal if each in (Stored.METRICS, Stored.STEPS)]
    if named and apart:
        raise ConfigError(f"--trace: {' and '.join(apart)} belong to no trace; choose them by --since and --until")
    if named:
        selection = Selection(traces=named, service=service)
    else:
        selection = Selection(_unix_ns(since), _unix_ns(until or "0s"), service)

    def chosen() -> Iterator[str]:
        return islice(traces_between(api, selection.since_ns, selection.until_ns, service), limit)

    readers: dict[
        Stored, tuple[Signal, str, Callable[[], Iterator[dict[str, Any]]], Callable[[dict[str, Any]], int]]
    ] = {
        Stored.TRACES: ("traces", "spans", lambda: bodies(api, iter(named) if named else chosen()), count_spans),
        Stored.STEPS: ("traces", "steps", lambda: stored_steps.bodies(api, selection), count_spans),
        Stored.METRICS: ("metrics", "points", lambda: stored_metrics.bodies(api, selection), stored_metrics.count),
        Stored.LOGS: ("logs", "log records", lambda: stored_logs.bodies(api, selection), stored_logs.count),
    }
    written: Counter[str] = Counter()

    def found() -> Iterator[tuple[Signal, dict[str, Any]]]:
        for each in dict.fromkeys(signal):
            kind, unit, read, count = readers[each]
            for body in read():
                written[unit] += count(body)
                yield kind, body

    _write(file, _json_lines(found()) if form is Form.JSON else _protobuf(found()))
    if not written:
        raise NotFound(f"no stored {' or '.join(signal)} match; nothing but an empty file was written")
    typer.echo(", ".join(f"{count} {unit}" for unit, count in written.items()), err=True)


def _trace_id(text: str) -> str:
    import re

    from tailtrace.errors import ConfigError

    if not re.fullmatch(r"[0-9a-fA-F]{32}", text):
        raise ConfigError(f"--trace: expected 32 hex digits, got {text!r}")
    return text.lower()


def _unix_ns(text: str) -> int:
    from tailtrace.cli.commands.requests import absolute
    from tailtrace.errors import ConfigError

    try:
        return int(absolute(text))
    except ValueError:
        raise ConfigError(f"expected 15m, 6h, 7d or a time in Unix ns; got {text!r}") from None


def _json_lines(found: Iterator[tuple[Signal, dict[str, Any]]]) -> Iterator[bytes]:
    import json

    for _, body in found:
        yield json.dumps(body).encode() + b"\n"


def _protobuf(found: Iterator[tuple[Signal, dict[str, Any]]]) -> Iterator[bytes]:
    """One body as it is; several each behind its length."""
    import json

    from tailtrace.ingest.framing import frame
    from tailtrace.ingest.receiver.otlp_json import to_protobuf

    encoded = (to_protobuf(signal, json.dumps(body).encode()).body for signal, body in found)
    first, second = next(encoded, None), next(encoded, None)
    if first is None:
        return
    if second is None:
        yield first
        return
    yield frame(first) + first
    yield frame(second) + second
    for body in encoded:
        yield frame(body) + body


def _write(path: Path, pieces: Iterator[bytes]) -> None:
    import gzip
    import sys

    from tailtrace.errors import ConfigError

    if str(path) == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    try:
        with path.open("wb") as plain:
            out: IO[bytes] = gzip.GzipFile(fileobj=plain, mode="wb") if path.suffix == ".gz" else plain  # type: ignore[assignment]
            with out:
                for piece in pieces:
                    out.write(piece)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
