"""The schema as an ordered sequence of files, and how a database is brought up to it.

A file is applied statement by statement and noted in `schema_version` when all of it is done. Statements can be
repeated, so a migration that was cut short resumes by running its file again.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from tailtrace.errors import SchemaTooNew, StoreError
from tailtrace.ingest.store.landing import SCHEMA_FOLDER
from tailtrace.ingest.store.migration_lock import migration_lock
from tailtrace.ingest.store.protocol import Store

_FILE = re.compile(r"(\d{4})_(\w+)\.sql\Z")
_CREATE = re.compile(r"CREATE (TABLE|MATERIALIZED VIEW|VIEW) (?!IF NOT EXISTS)")
_COMMENT_LINES = re.compile(r"^--.*\n", re.MULTILINE)

VERSION_TABLE = """CREATE TABLE IF NOT EXISTS schema_version (
  Version UInt32, Name String, AppliedAt DateTime64(3, 'UTC') DEFAULT now64(3)
) ENGINE = ReplacingMergeTree ORDER BY Version"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file of the schema."""

    version: int
    name: str
    text: str

    def statements(self) -> list[str]:
        """Its statements, each of which ends with a semicolon at a line's end, in a form that can be repeated."""
        parts = (_COMMENT_LINES.sub("", part).strip() for part in (self.text + "\n").split(";\n"))
        return [_CREATE.sub(r"CREATE \1 IF NOT EXISTS ", part, count=1) for part in parts if part]


def migrations(folder: Path = SCHEMA_FOLDER) -> list[Migration]:
    """All files of the schema, in order. Two with one number are a mistake of the release, hence StoreError."""
    found: dict[int, Migration] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.match(path.name)
        if match is None:
            raise StoreError(f"schema files are named NNNN_name.sql, got {path.name}")
        version = int(match[1])
        if version in found:
            raise StoreError(f"schema files {found[version].name} and {match[2]} both have the number {version}")
        found[version] = Migration(version, match[2], path.read_text("utf-8"))
    return [found[version] for version in sorted(found)]


def ddl(folder: Path = SCHEMA_FOLDER) -> str:
    """The whole schema as text, as it would be run on an empty database."""
    return "\n".join(f"-- {m.version:04d}_{m.name}\n{m.text.strip()}\n" for m in migrations(folder))


def migrate(
    store: Store,
    folder: Path = SCHEMA_FOLDER,
    progress: Callable[[Migration], None] | None = None,
    *,
    shared: bool = False,
) -> list[int]:
    """Bring the store's database to this release's schema; returns the versions that were applied now.

    `shared`: other processes may do the same at this moment. Raises SchemaTooNew when the database holds a version that
    this release does not know.
    """
    known = migrations(folder)
    store.command(VERSION_TABLE)
    if not _pending(store, known):
        return []
    with migration_lock(store) if shared else nullcontext(lambda: None) as still_alive:
        applied = []
        for migration in _pending(store, known):
            for statement in migration.statements():
                store.command(statement)
                still_alive()
            store.command(
                "INSERT INTO schema_version (Version, Name) SELECT {version:UInt32}, {name:String}",
                {"version": migration.version, "name": migration.name},
            )
            applied.append(migration.version)
            if progress is not None:
                progress(migration)
    return applied


def _pending(store: Store, known: Sequence[Migration]) -> list[Migration]:
    done = {int(row["Version"]) for row in store.query("SELECT DISTINCT Version FROM schema_version", role="jobs")}
    newest = max((m.version for m in known), default=0)
    if done and max(done) > newest:
        raise SchemaTooNew(
            f"the data has schema version {max(done)}, this release knows up to {newest}: "
            "it was written by a newer release; upgrade, or point --data at another directory"
        )
    return [migration for migration in known if migration.version not in done]
