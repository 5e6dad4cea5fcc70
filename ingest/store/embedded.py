"""The embedded store: ClickHouse inside this process (chdb), on a data directory that this process alone owns.

Three facts about chdb shape this file. It is one engine per process; a child made by fork hangs in its first query, so
the store refuses to be used there; its crash handlers keep a dead process sitting for minutes, so they are off.
"""

import atexit
import os
import queue
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import chdb
import pyarrow as pa

from tailtrace.errors import ConfigError, StoreDead, StoreError
from tailtrace.ingest.store.landing import ARROW_SETTINGS, SEGMENT_SETTINGS, deduplication, landing
from tailtrace.ingest.store.lock import DirectoryLock
from tailtrace.ingest.store.parameters import bind
from tailtrace.ingest.store.protocol import Parameters, Role, Settings, Signal
from tailtrace.ingest.store.roles import GUEST, LIMITS, SESSION
from tailtrace.ingest.store.rows import to_rows
from tailtrace.ingest.store.statements import (
    identifier,
    identifier_path,
    literal,
    named_query,
    reason,
    settings_clause,
)

if hasattr(chdb._chdb, "set_signal_handlers_enabled"):
    chdb._chdb.set_signal_handlers_enabled(False)

DATABASE = "tailtrace"
_MIB = 1024 * 1024

# Connections of a role: statements on one connection wait for each other, those of different ones do not.
Pool = Role | Literal["guest"]
_POOL: Mapping[Pool, int] = {"insert": 1, "jobs": 2, "ui": 4, "guest": 2}


class EmbeddedStore:
    """A store on `directory`/db. Threads may share it; another process, and a forked child, may not."""

    def __init__(self, directory: Path, memory_bytes: int) -> None:
        """Open or create the database; StoreLocked when another process owns the directory."""
        path = directory.resolve()
        if "?" in str(path):
            raise ConfigError(f"the embedded database cannot live in a path with a question mark: {path}")
        path.mkdir(parents=True, exist_ok=True)
        self._pid = os.getpid()
        self._closed = False
        self._lock = DirectoryLock(path)
        # Left open, the engine crashes while the interpreter is torn down.
        atexit.register(self.close)
        self._dsn = f"{path / 'db'}?" + "&".join(f"{k}={v}" for k, v in _engine_options(memory_bytes).items())
        self._scratch = path / "scratch"
        self._scratch.mkdir(exist_ok=True)
        for leftover in self._scratch.iterdir():
            leftover.unlink()
        self._control_lock = threading.Lock()
        self._rest_lock = threading.Lock()
        self._connections: list[Any] = []
        self._pools: dict[Pool, queue.LifoQueue[Any]] = {}
        try:
            self._control = self._connect({})
            self._control.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE} ENGINE = Atomic")
            for role, size in _POOL.items():
                pool = self._pools[role] = queue.LifoQueue()
                for _ in range(size):
                    pool.put(self._connect(GUEST if role == "guest" else LIMITS[role]))
        except RuntimeError as error:
            self.close()
            raise StoreError(f"the embedded database in {path} does not open: {reason(error)}") from error

    def query_arrow(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> pa.Table:
        """See Store."""
        body = self._run(role, sql, parameters, settings, "ArrowStream").bytes()
        return pa.ipc.open_stream(body).read_all() if body else pa.table({})

    def query(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> list[dict[str, Any]]:
        """See Store."""
        return to_rows(self.query_arrow(sql, parameters, role=role, settings=settings))

    def raw(self, sql: str, values: Mapping[str, str], default_format: str, *, role: Pool = "guest") -> bytes:
        """The result in `default_format`, or in the format that the statement names. Values of parameters come escaped.

        The guest role can change nothing, but see `guest_queries` for what it could read.
        """
        return bytes(self._execute(role, sql, values, default_format).bytes() or b"")

    def raw_insert(
        self,
        sql: str,
        settings: Settings,
        data_format: str,
        chunks: Iterator[bytes | memoryview],
        *,
        role: Role = "jobs",
    ) -> None:
        """Run `sql` (INSERT INTO ... without FORMAT) with a body in `data_format` that arrives in pieces."""
        with self._scratch_file() as path:
            with path.open("xb") as file:
                file.writelines(chunks)
            self._insert_file(sql, settings, data_format, str(path), role)

    @contextmanager
    def _scratch_file(self) -> Iterator[Path]:
        """A path for what is to be inserted, gone afterwards."""
        path = self._scratch / uuid.uuid4().hex
        try:
            yield path
        except OSError as error:
            raise StoreError(f"what is to be inserted cannot be written to {self._scratch}: {error}") from None
        finally:
            path.unlink(missing_ok=True)

    def _insert_file(self, sql: str, settings: Settings, data_format: str, path: str, role: Role) -> None:
        """Inserts a file. The engine's streaming insert is no way: an error behind its parser (no memory, a full disk)
        is reported as success, with nothing stored."""
        source = f" FROM INFILE {literal(path)}{settings_clause(settings or {})} FORMAT {identifier(data_format)}"
        self._execute(role, sql + source, {}, "Null")

    def insert_arrow(self, table: str, data: pa.Table, *, token: str | None = None, role: Role = "jobs") -> None:
        """See Store."""
        columns = ", ".join(f"`{identifier_path(name)}`" for name in data.column_names)
        sql = f"INSERT INTO {identifier(table)} ({columns})"
        settings = {**ARROW_SETTINGS, **deduplication(token)}
        with self._scratch_file() as path:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, data.schema) as writer:
                writer.write_table(data)
            self._insert_file(sql, settings, "ArrowStream", str(path), role)

    def insert_segment(self, signal: Signal, path: Path, token: str) -> None:
        """See Store."""
        where = landing(signal)
        # The schema is given as a file: given as text, the engine would write it below the working directory.
        schema = {"format_schema": f"{where.proto_path}:{where.message}"}
        settings = {**SEGMENT_SETTINGS, **schema, **deduplication(token)}
        self._insert_file(f"INSERT INTO {where.table}", settings, "Protobuf", str(path.resolve()), "insert")

    def command(self, sql: str, parameters: Parameters = None, *, role: Role = "jobs") -> None:
        """See Store."""
        self._run(role, sql, parameters, None, "Null")

    def cancel(self, query_id: str) -> None:
        """See Store."""
        self._alive()
        self._control_command(f"KILL QUERY WHERE {named_query(query_id)} ASYNC")

    @contextmanager
    def at_rest(self, wait_s: float = 120.0) -> Iterator[frozenset[Path]]:
        """Within it no file of a table changes: inserts and jobs wait for their connections, nothing is merged.

        Gives the folders of parts that are no longer active and may vanish at any moment. Raises StoreError when what
        runs does not end within `wait_s`.
        """
        self._alive()
        ends = time.monotonic() + wait_s
        held: list[tuple[queue.LifoQueue[Any], Any]] = []
        roles: tuple[Pool, ...] = ("insert", "jobs")
        with self._rest_lock:
            try:
                for role in roles:
                    pool = self._pools[role]
                    for _ in range(_POOL[role]):
                        connection = pool.get(timeout=max(ends - time.monotonic(), 0.0))
                        held.append((pool, connection))
                self._control_command("SYSTEM STOP MERGES")
                while self.query("SELECT count() AS n FROM system.merges")[0]["n"]:
                    if time.monotonic() > ends:
                        raise queue.Empty
                    time.sleep(0.02)
                gone = self.query("SELECT path FROM system.parts WHERE NOT active")
                yield frozenset(Path(str(row["path"])) for row in gone)
            except queue.Empty:
                raise StoreError(f"the store did not come to rest within {wait_s:.0f} s") from None
            finally:
                self._control_command("SYSTEM START MERGES")
                for pool, connection in held:
                    pool.put(connection)

    def close(self) -> None:
        """See Store."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        atexit.unregister(self.close)
        for connection in self._connections:
            connection.close()
        self._lock.release()

    def _control_command(self, statement: str) -> None:
        with self._control_lock:
            self._control.query(statement)

    def _connect(self, session: Mapping[str, Any]) -> Any:
        connection: Any = chdb.connect(self._dsn)  # type: ignore[no-untyped-call]
        self._connections.append(connection)
        if session:
            connection.query(f"USE {DATABASE}")
        for name, value in {**SESSION, **session}.items():
            connection.query(f"SET {identifier(name)} = {literal(str(value))}")
        return connection

    def _alive(self) -> None:
        if os.getpid() != self._pid:
            raise StoreDead(
                "the embedded database was opened before this process was forked, and cannot be used in the child: "
                "use threads or the spawn start method (Celery: -P threads), or a server (TAILTRACE_CLICKHOUSE_URL)"
            )
        if self._closed:
            raise StoreDead("the embedded database is closed: open a new store")

    @contextmanager
    def _connection(self, role: Pool) -> Iterator[Any]:
        self._alive()
        pool = self._pools[role]
        connection = pool.get()
        try:
            yield connection
        except BaseException:
            # The connection still holds what the failed statement had put out, and would give it as the start of the
            # next result.
            connection.close()
            self._connections.remove(connection)
            connection = self._connect(GUEST if role == "guest" else LIMITS[role])
            raise
        finally:
            pool.put(connection)

    def _run(self, role: Role, sql: str, parameters: Parameters, settings: Settings, output_format: str) -> Any:
        statement, values = bind(sql, parameters)
        return self._execute(role, statement + settings_clause(settings or {}), values, output_format)

    def _execute(self, role: Pool, statement: str, values: Mapping[str, Any], output_format: str) -> Any:
        with self._connection(role) as connection:
            try:
                return connection.query(statement, output_format, params=values)
            except RuntimeError as error:
                raise StoreError(reason(error)) from None


def _engine_options(memory_bytes: int) -> dict[str, int | str]:
    """Options of the whole engine: sized for a product that shares a machine with the service it watches."""
    return {
        "max_server_memory_usage": memory_bytes,
        "mark_cache_size": 64 * _MIB,
        "index_mark_cache_size": 16 * _MIB,
        "primary_index_cache_size": 64 * _MIB,
        "uncompressed_cache_size": 0,
        "query_cache_size": 0,
        "query_condition_cache_size": 8 * _MIB,
        "compiled_expression_cache_size": 16 * _MIB,
        "session_timezone": "UTC",
    }
