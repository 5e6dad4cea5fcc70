"""What an empty store shows: how to send something, in three ways, with this server's own addresses."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.dashboard.components.attributes import data
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings


def first_run(text: Text, settings: ServerSettings) -> Any:
    """Shown until the first request is judged; the page looks again by itself."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    endpoint = f"http://{host}:{settings.otlp_http_port or 4318}"
    # 0 is off.
    grpc = text("first.grpc", address=f"{host}:{settings.otlp_grpc_port}") if settings.otlp_grpc_port else ""
    ways = (
        ("first.run", f"export OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}\ntailtrace run -- vllm serve MODEL"),
        ("first.code", "from tailtrace.instrumentation import wrap_gateway\n\napp = wrap_gateway(app)"),
        (
            "first.otlp",
            f"export OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}\nexport OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        ),
        ("first.demo", "tailtrace demo"),
    )
    return html.Div(
        [
            html.H1(text("first.title")),
            html.P(text("first.body", endpoint=endpoint, grpc=grpc)),
            html.Div(
                [
                    html.Section(
                        [html.H2(text(f"{key}.title")), html.P(text(f"{key}.body")), _command(text, command)],
                        className="tt-panel tt-way",
                    )
                    for key, command in ways
                ],
                className="tt-ways",
            ),
            html.P(text("first.waiting"), className="tt-muted"),
        ],
        className="tt-first",
    )


def _command(text: Text, command: str) -> Any:
    return html.Div(
        [html.Pre(command), html.Button(text("copy.short"), className="tt-button is-small", **data(copy=command))],
        className="tt-command",
    )
