"""Settings of the server side, each declared once: name, environment variable, type, default, one line.

Every field can be set with TAILTRACE_<NAME>; the command line and the documentation are made from this class.
"""

import os
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1024 * 1024
GB = 1_000_000_000


def default_data_directory() -> Path:
    """Where data goes unless told otherwise: $XDG_DATA_HOME/tailtrace, by default ~/.local/share/tailtrace."""
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "tailtrace"


class ServerSettings(BaseSettings):
    """What `tailtrace up` and its workers can be told."""

    model_config = SettingsConfigDict(env_prefix="TAILTRACE_", frozen=True, extra="ignore")

    data: Path = Field(
        default_factory=default_data_directory,
        description="Directory that holds the journal and, without a ClickHouse server, the database.",
    )
    host: str = Field("127.0.0.1", description="Address that every listener binds to.")
    port: int = Field(8050, ge=0, le=65535, description="Port of the dashboard and the JSON API; 0 switches it off.")
    otlp_http_port: int = Field(4318, ge=0, le=65535, description="Port of OTLP over HTTP; 0 switches it off.")
    otlp_grpc_port: int = Field(4317, ge=0, le=65535, description="Port of OTLP over gRPC; 0 switches it off.")
    clickhouse_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port of read-only ClickHouse HTTP over the embedded database; 0 is off.",
    )
    clickhouse_url: str = Field(
        "", description="DSN of a ClickHouse server, http://user:password@host:8123/tailtrace; empty means embedded."
    )
    broker_url: str = Field("", description="Celery broker, redis://host:6379/0; empty means in this process.")
    heartbeat_file: Path | None = Field(
        None, description="File that a worker or beat of its own touches while it works: its age is a health check."
    )
    jobs: bool = Field(True, description="Run the background jobs in this process; off where Celery workers run them.")
    token: str = Field("", repr=False, description="Bearer token that clients and browsers present; empty means none.")
    tokens_file: Path | None = Field(
        None, description="File of scoped tokens (`tailtrace token`); empty means tokens.json in the data directory."
    )
    tls_cert: Path | None = Field(None, description="PEM certificate chain; with tls_key every door speaks TLS.")
    tls_key: Path | None = Field(None, description="PEM private key of tls_cert.")
    insecure: bool = Field(False, description="Allow a non-loopback address without a token.")
    scrape: str = Field(
        "",
        description="Prometheus pages to read, NAME=URL[,INTERVAL] separated by blanks: vllm=http://host:8000/metrics,10s",
    )
    max_body_bytes: int = Field(16 * MIB, gt=0, description="Largest request body as sent, in bytes.")
    max_inflated_bytes: int = Field(64 * MIB, gt=0, description="Largest request body once decompressed, in bytes.")
    max_event_age_days: int = Field(0, ge=0, description="Spans that began longer ago are rejected; 0 means no limit.")
    journal_max_bytes: int = Field(
        2_000 * MIB, gt=0, description="Telemetry accepted but not yet stored; beyond it senders are told to retry."
    )
    min_free_bytes: int = Field(
        1_000 * MIB, ge=0, description="Free disk space below which telemetry is refused, so that the rest still works."
    )
    storage_budget_bytes: int = Field(
        20 * GB, gt=0, description="Room for spans, metrics and logs; the oldest days are dropped beyond it."
    )
    retention_days: int = Field(
        0, ge=0, description="Spans, metrics and logs of older days are dropped, budget or not; 0 means no limit."
    )
    derived_retention_days: int = Field(
        0, ge=0, description="Requests and rollups of older days (rollups: months) are dropped; 0 means no limit."
    )
    memory_bytes: int = Field(
        1_200 * MIB,
        ge=256 * MIB,
        description="Memory of the process beyond which the embedded database refuses queries.",
    )

    goals: str = Field(
        "", description="What services are for, SERVICE=online or SERVICE=offline separated by blanks; else guessed."
    )
    alerts_file: Path | None = Field(None, description="TOML file of alert rules and channels; the API adds to it.")
    public_url: str = Field("", description="Address that links in messages begin with; empty means host and port.")
    time_zone: str = Field("UTC", description="IANA zone whose hours of the week recur, and that messages also name.")

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"expected an IANA zone like Europe/Berlin; got {name!r}") from None
        return name

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both or neither")
        if self.max_inflated_bytes < self.max_body_bytes:
            raise ValueError(
                f"max_inflated_bytes ({self.max_inflated_bytes}) is below max_body_bytes ({self.max_body_bytes})"
            )
        return self
