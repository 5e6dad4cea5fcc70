"""Options that several commands share, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of journal and database (TAILTRACE_DATA; default: the user's own)."),
]
Config = Annotated[Path | None, typer.Option("--config", envvar="TAILTRACE_CONFIG", help="TOML file of settings.")]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on (TAILTRACE_HOST; default 127.0.0.1).")]
Port = Annotated[
    int | None, typer.Option("--port", help="Port of dashboard and API; 0 = off (TAILTRACE_PORT; default 8050).")
]
OtlpHttpPort = Annotated[
    int | None,
    typer.Option("--otlp-http-port", help="Port of OTLP/HTTP; 0 = off (TAILTRACE_OTLP_HTTP_PORT; default 4318)."),
]
OtlpGrpcPort = Annotated[
    int | None,
    typer.Option("--otlp-grpc-port", help="Port of OTLP/gRPC; 0 = off (TAILTRACE_OTLP_GRPC_PORT; default 4317)."),
]
ClickHousePort = Annotated[
    int | None,
    typer.Option(
        "--clickhouse-port", help="Port of read-only ClickHouse HTTP; 0 = off (TAILTRACE_CLICKHOUSE_PORT; default 0)."
    ),
]
ServerToken = Annotated[
    str | None, typer.Option("--token", help="Bearer token that every client must present (better: TAILTRACE_TOKEN).")
]
Insecure = Annotated[
    bool | None, typer.Option("--insecure", help="Allow a non-loopback --host without a token.", show_default=False)
]
Scrape = Annotated[
    list[str] | None,
    typer.Option(
        "--scrape", help="NAME=URL[,INTERVAL] of an engine's or exporter's /metrics (TAILTRACE_SCRAPE); repeat."
    ),
]
Sample = Annotated[
    bool, typer.Option("--sample", help="Also read this machine's GPU, link and host counters (`tailtrace sample`).")
]

Url = Annotated[str, typer.Option("--url", envvar="TAILTRACE_URL", help="Address of the server's dashboard and API.")]
ClientToken = Annotated[
    str, typer.Option("--token", envvar="TAILTRACE_TOKEN", help="Bearer token of the server.", show_default=False)
]
Endpoint = Annotated[
    str, typer.Option("--endpoint", envvar="TAILTRACE_ENDPOINT", help="Address of the server's OTLP/HTTP door.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON as it came.")]

DEFAULT_URL = "http://127.0.0.1:8050"
DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
