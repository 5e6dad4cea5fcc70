"""`tailtrace export`: stored traces as OTLP files, or one of them for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from tailtrace.cli import options


class Form(StrEnum):
    """What is written."""

    JSON = "json"
    PROTOBUF = "protobuf"
    CHROME = "chrome"


def export(
    file: Annotated[Path, typer.Argument(help="File to write; `.gz` is compressed, `-` is stdout.")],
    trace: Annotated[list[str] | None, typer.Option("--trace", help="Id of a trace; repeatable.")] = None,
    service: Annotated[str, typer.Option("--service", help="Traces in which this service took part.")] = "",
    since: Annotated[str, typer.Option("--since", help="15m, 6h, 7d back from now, or Unix ns: began after.")] = "1h",
    until: Annotated[str, typer.Option("--until", help="The same: began before. Default: now.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most traces, oldest first.")] = 10_000,
    form: Annotated[
        Form, typer.Option("--format", help="OTLP as json (a body a line) or protobuf; chrome: one trace for Perfetto.")
    ] = Form.JSON,
    url: options.Url = options.DEFAULT_URL,
    token: options.ClientToken = "",
) -> None:
    """Write stored traces to a file that `tailtrace load` reads. Attributes come back as text, as they are stored."""
    import json
    from itertools import islice

    from tailtrace.cli.client import ApiClient
    from tailtrace.cli.stored_traces import bodies, count_spans, traces_between
    from tailtrace.errors import ConfigError, NotFound

    api = ApiClient(url, token)
    named = list(trace or ())
    if form is Form.CHROME:
        if len(named) != 1:
            raise ConfigError("--format chrome writes one trace: give --trace once")
        events = api.get(f"requests/{_trace_id(named[0])}/chrome")
        _write(file, iter([json.dumps(events).encode()]))
        typer.echo(f"{events['otherData']['shown']} of {events['otherData']['total']} spans", err=True)
        return
    ids: Iterator[str]
    if named:
        ids = (_trace_id(each) for each in named)
    else:
        ids = islice(traces_between(api, _unix_ns(since), _unix_ns(until or "0s"), service), limit)
    spans = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal spans
        for body in bodies(api, ids):
            spans += count_spans(body)
            yield body

    _write(file, _json_lines(counted()) if form is Form.JSON else _protobuf(counted()))
    if not spans:
        raise NotFound("no stored trace matches; nothing but an empty file was written")
    typer.echo(f"{spans} spans", err=True)


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


def _json_lines(found: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    import json

    for body in found:
        yield json.dumps(body).encode() + b"\n"


def _protobuf(found: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """One body as it is; several each behind its length."""
    import json

    from tailtrace.ingest.framing import frame
    from tailtrace.ingest.receiver.otlp_json import to_protobuf

    encoded = (to_protobuf("traces", json.dumps(body).encode()).body for body in found)
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
