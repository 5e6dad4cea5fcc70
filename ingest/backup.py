"""A whole copy of a data directory, and a data directory made from one.

A copy holds database and journal as of one moment, with the engine's memory of tokens in it: what was acknowledged
before that moment is in one of the two, and the journal's segments are stored once however far they had come. Names of
segments are never used again, also not by the directory made from it: every start draws new ones.

While the owner works, its files are staged as hard links within the second that the store stands still, and copied
from there at leisure. The manifest is written last: a copy without one is not whole.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailtrace.errors import ConfigError, StoreError
from tailtrace.version import VERSION

if TYPE_CHECKING:
    from tailtrace.ingest.store.embedded import EmbeddedStore

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_NOT_DATA: Final = frozenset({"owner.lock", "control.sock", "scratch", "backup-staging", "ballast"})
_CHUNK: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a copy holds: size and BLAKE2b digest of each file, targets of links, and folders, by relative path."""

    made_unix_ns: int
    program: str = VERSION
    format: int = FORMAT
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


def backup_running(store: "EmbeddedStore", data: Path, target: Path) -> Manifest:
    """Copy the directory of an open store. Inserts and jobs wait while links are made, senders do not.

    Raises ConfigError for a target that cannot be one, StoreError when the store does not come to rest.
    """
    data = data.resolve()  # as the engine names its folders
    _check_target(data, target)
    staging = data / "backup-staging"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        with store.at_rest() as leaving:
            _stage(data, staging, leaving)
        return _copied(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def backup_stopped(data: Path, target: Path) -> Manifest:
    """Copy a directory that no process uses; the caller holds its lock."""
    _check_target(data, target)
    return _copied(data, target)


def restore(source: Path, data: Path) -> Manifest:
    """Make the directory `data`, absent or empty, from a copy; nothing is there until all of it has been verified."""
    manifest = _read_manifest(source)
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise ConfigError(f"{data} is not empty: a backup is restored into a directory of its own")
    building = data.with_name(data.name + ".restoring")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True, mode=0o700)
    try:
        for name in manifest.folders:
            (building / name).mkdir(parents=True, exist_ok=True)
        for name, (size, digest) in manifest.files.items():
            found = _copy(source / "data" / name, building / name)
            if found != (size, digest):
                raise StoreError(f"the backup is damaged: {name} is not what was written; use another one")
        for name, to in manifest.links.items():
            (building / name).symlink_to(to)
        os.sync()
        if data.exists():
            data.rmdir()
        building.rename(data)
    except OSError as error:
        raise StoreError(f"the backup cannot be restored: {error}") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return manifest


def _check_target(data: Path, target: Path) -> None:
    if target.resolve().is_relative_to(data.resolve()):
        raise ConfigError(f"{target} lies in the data directory: a backup belongs elsewhere, best on another disk")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} is not empty: give each backup a directory of its own")


def _read_manifest(source: Path) -> Manifest:
    try:
        read = json.loads((source / MANIFEST).read_text("utf-8"))
        if read["format"] != FORMAT:
            raise ConfigError(f"{source} is a backup of format {read['format']}; this release reads {FORMAT}")
        read["files"] = {name: (int(size), str(digest)) for name, (size, digest) in read["files"].items()}
        manifest = Manifest(**read)
    except FileNotFoundError:
        raise ConfigError(f"{source} has no {MANIFEST}: it is no backup, or one that was not finished") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{source / MANIFEST} cannot be read: {error}") from None
    links = [os.path.join(os.path.dirname(name), to) for name, to in manifest.links.items()]
    for name in (*manifest.files, *manifest.folders, *manifest.links, *links):
        if os.path.isabs(name) or os.path.normpath(name).startswith(".."):
            raise ConfigError(f"{source / MANIFEST} names {name!r}, which lies outside")
    return manifest


def _entries(folder: Path, leaving: Collection[Path] = ()) -> Iterator[Path]:
    """Everything below a data directory, folders before what is in them; not what belongs to its process."""
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        top = here == folder
        folders[:] = [
            name
            for name in sorted(folders)
            if not (top and name in _NOT_DATA) and not name.startswith("tmp_") and here / name not in leaving
        ]
        linked = [name for name in folders if (here / name).is_symlink()]
        yield from (here / name for name in folders)
        yield from (here / name for name in sorted(files) if not (top and name in _NOT_DATA))
        folders[:] = [name for name in folders if name not in linked]


def _stage(data: Path, staging: Path, leaving: Collection[Path]) -> None:
    """Hard links to files that never change once written, copies of the rest."""
    staging.mkdir(mode=0o700)
    for path in _entries(data, leaving):
        to = staging / path.relative_to(data)
        if path.is_symlink():
            to.symlink_to(path.readlink())
        elif path.is_dir():
            to.mkdir()
        elif path.suffix == ".otlp" or (path.suffix != ".txt" and (path.parent / "checksums.txt").exists()):
            try:
                os.link(path, to)
            except FileNotFoundError:  # a segment that was removed because it is stored
                continue
            except OSError:  # a file system without links
                shutil.copy2(path, to)
        else:
            shutil.copy2(path, to)


def _copied(source: Path, target: Path) -> Manifest:
    manifest = Manifest(made_unix_ns=time.time_ns())
    try:
        (target / "data").mkdir(parents=True, mode=0o700)
        for path in _entries(source):
            name = path.relative_to(source).as_posix()
            if path.is_symlink():
                manifest.links[name] = os.readlink(path)
            elif path.is_dir():
                manifest.folders.append(name)
                (target / "data" / name).mkdir()
            elif path.is_file():
                manifest.files[name] = _copy(path, target / "data" / name)
        os.sync()
        with (target / MANIFEST).open("w", encoding="utf-8") as file:
            json.dump(asdict(manifest), file)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"the backup in {target} is not whole: {error}") from None
    return manifest


def _copy(source: Path, target: Path) -> tuple[int, str]:
    """Copies one file with its mode; gives its size and digest."""
    digest = hashlib.blake2b(digest_size=20)
    size = 0
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            writer.write(chunk)
            size += len(chunk)
    shutil.copymode(source, target)
    return size, digest.hexdigest()
