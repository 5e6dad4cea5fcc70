"""`tailtrace backup` and `tailtrace restore`: a whole copy of a data directory, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailtrace.cli import options

_ON_A_SERVER = (
    "with a ClickHouse server the data is that server's. Stop receivers and workers, then run there "
    "BACKUP DATABASE tailtrace TO Disk('backups', 'NAME') or copy its volume, and copy each receiver's --data; "
    "docs/operations.md says what to mind on the way back"
)


def backup(
    target: Annotated[Path, typer.Argument(help="Directory for the copy; absent or empty.")],
    data: options.Data = None,
    config: options.Config = None,
) -> None:
    """Copy database and journal as of one moment. A running server goes on meanwhile; so do its senders."""
    from tailtrace.cli.processes.control import ask
    from tailtrace.errors import ConfigError, StoreLocked

    directory = _directory(data, config)
    if not directory.is_dir():
        raise ConfigError(f"there is no data directory {directory}")
    try:
        from tailtrace.ingest.store.lock import DirectoryLock

        lock = DirectoryLock(directory)
    except StoreLocked:
        done = ask(directory, "backup", target=str(target.absolute()))
        files, size = int(done["files"]), int(done["bytes"])
    else:
        from tailtrace.ingest.backup import backup_stopped

        try:
            manifest = backup_stopped(directory, target)
        finally:
            lock.release()
        files, size = len(manifest.files), manifest.bytes
    typer.echo(f"{files} files, {size / 1e6:.1f} MB copied to {target}")


def restore(
    source: Annotated[Path, typer.Argument(help="Directory that `tailtrace backup` made.")],
    data: options.Data = None,
    config: options.Config = None,
) -> None:
    """Make a data directory, absent or empty, from a copy. Every file is verified before any of it is in place."""
    from tailtrace.ingest.backup import restore as restore_directory

    directory = _directory(data, config)
    manifest = restore_directory(source, directory)
    typer.echo(f"{len(manifest.files)} files, {manifest.bytes / 1e6:.1f} MB restored to {directory}")


def _directory(data: Path | None, config: Path | None) -> Path:
    from tailtrace.cli.configuration import load_settings
    from tailtrace.errors import ConfigError

    settings = load_settings({"data": data}, config)
    if settings.clickhouse_url:
        raise ConfigError(_ON_A_SERVER)
    return settings.data
