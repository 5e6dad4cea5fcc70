"""The store on a ClickHouse server, over its HTTP interface."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect import common
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3.exceptions import HTTPError

from tailtrace.errors import ConfigError, StoreDead, StoreError
from tailtrace.ingest.store.landing import ARROW_SETTINGS, SEGMENT_SETTINGS, deduplication, landing
from tailtrace.ingest.store.protocol import Parameters, Role, Settings, Signal
from tailtrace.ingest.store.roles import LIMITS, SESSION
from tailtrace.ingest.store.rows import to_rows
from tailtrace.ingest.store.statements import identifier, identifier_path, named_query, reason

_FAILURES = (ClickHouseError, HTTPError, OSError)

# Where a table is spread over shards: an insert is done when it is on its shard, not when it is queued for it.
_INSERT: Mapping[str, Any] = {"distributed_foreground_insert": 1}

# The server judges settings; the library's list of known ones is that of the moment it connected.
common.set_setting("invalid_setting_action", "send")
# A dict is a Map here; the library's default would make it JSON text.
common.set_setting("dict_parameter_format", "map")


class ServerStore:
    """A store behind a DSN, http://user:password@host:8123/tailtrace. Without a session, so threads share it."""

    def __init__(self, url: str) -> None:
        """Connect, and create the database when it is absent; StoreError when the server cannot be reached."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "expected a ClickHouse URL like http://user:password@host:8123/tailtrace, without scheme or host"
            )
        self._address = f"{parts.scheme}://{parts.hostname}:{parts.port or (8443 if parts.scheme == 'https' else 8123)}"
        self._arguments: dict[str, Any] = {
            "host": parts.hostname,
            "port": parts.port or (8443 if parts.scheme == "https" else 8123),
            "username": unquote(parts.username or "default"),
            "password": unquote(parts.password or ""),
            "secure": parts.scheme == "https",
            "autogenerate_session_id": False,
            "query_retries": 0,
            "connect_timeout": 5,
            "send_receive_timeout": 300,
        }
        self._pid = os.getpid()
        self._database = identifier(parts.path.strip("/") or "tailtrace")
        self._client: Client | None = None
        try:
            first = clickhouse_connect.get_client(**self._arguments)
            first.command(f"CREATE DATABASE IF NOT EXISTS {self._database}")
            first.close()
            self._client = clickhouse_connect.get_client(**self._arguments, database=self._database)
        except _FAILURES as error:
            raise StoreError(f"the ClickHouse server at {self._address} cannot be used: {reason(error)}") from None

    def query_arrow(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> pa.Table:
        """See Store."""
        body = self._raw(role, sql, parameters, settings, "ArrowStream")
        return pa.ipc.open_stream(body).read_all() if body else pa.table({})

    def query(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> list[dict[str, Any]]:
        """See Store."""
        return to_rows(self.query_arrow(sql, parameters, role=role, settings=settings))

    def insert_arrow(self, table: str, data: pa.Table, *, token: str | None = None, role: Role = "jobs") -> None:
        """See Store."""
        columns = [f"`{identifier_path(name)}`" for name in data.column_names]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, data.schema) as writer:
            writer.write_table(data)
        body = pa.BufferReader(sink.getvalue())
        settings = {**ARROW_SETTINGS, **deduplication(token)}
        self._insert(f"{identifier(table)} ({', '.join(columns)})", body, settings, "ArrowStream", role)

    def insert_segment(self, signal: Signal, path: Path, token: str) -> None:
        """See Store. The body is streamed from the file; the schema travels as text."""
        where = landing(signal)
        schema = {
            "format_schema_source": "string",
            "format_schema": where.proto_text,
            "format_schema_message_name": where.message,
        }
        settings = {**SEGMENT_SETTINGS, **schema, **deduplication(token)}
        with path.open("rb") as body:
            self._insert(where.table, body, settings, "Protobuf", "insert")

    def command(self, sql: str, parameters: Parameters = None, *, role: Role = "jobs") -> None:
        """See Store."""
        self._raw(role, sql, parameters, None, None)

    def cancel(self, query_id: str) -> None:
        """See Store."""
        self._raw("ui", f"KILL QUERY WHERE {named_query(query_id)} ASYNC", None, None, None)

    def close(self) -> None:
        """See Store."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _alive(self) -> Client:
        if os.getpid() != self._pid:
            raise StoreDead("this connection was opened before the process was forked: open the store in the child")
        if self._client is None:
            raise StoreDead("the connection to the ClickHouse server is closed: open a new store")
        return self._client

    def _raw(self, role: Role, sql: str, parameters: Parameters, settings: Settings, output: str | None) -> bytes:
        client = self._alive()
        everything = {**SESSION, **LIMITS[role], **(settings or {})}
        try:
            return client.raw_query(sql, parameters=dict(parameters or {}), settings=everything, fmt=output)
        except _FAILURES as error:
            raise StoreError(reason(error)) from None

    def _insert(self, target: str, body: Any, settings: Mapping[str, Any], data_format: str, role: Role) -> None:
        client = self._alive()
        try:
            client.raw_insert(
                target, insert_block=body, settings={**SESSION, **_INSERT, **LIMITS[role], **settings}, fmt=data_format
            )
        except _FAILURES as error:
            raise StoreError(reason(error)) from None
