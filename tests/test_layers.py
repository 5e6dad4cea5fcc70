"""What holds for the tree as a whole: layers, what the client loads, no traces of the machine it was made on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = (
    "apprise", "celery", "chdb", "clickhouse_connect", "dash", "fastapi", "google.protobuf", "grpc", "httpx", "numba",
    "numpy", "orjson", "pandas", "psutil", "pyarrow", "pydantic", "requests", "rich", "starlette", "typer", "uvicorn",
)  # fmt: skip

# Home directories, checkouts and indexes of whoever wrote a file; a reader has none of them.
MACHINE = re.compile(
    rb"/(?:home|Users)/(?!u/|user/|you/|me/)[a-z][\w.-]*/|/root/|/mnt/[a-z]|/workspaces?/"
    rb"|[A-Z]:\\Users\\|--(?:extra-)?index-url[ =]|--trusted-host|\bPIP_(?:EXTRA_)?INDEX_URL=|file:///(?!\{|\$)"
)
BINARY = {".pb", ".png", ".svg", ".gz", ".csv", ".ico", ".parquet", ".woff2"}


def tracked() -> list[Path]:
    """Files of the repository; in an unpacked archive, of the folders that hold sources."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        return [ROOT / name.decode() for name in listed.split(b"\0") if name and (ROOT / name.decode()).is_file()]
    folders = ("tailtrace", "instrumentation", "ingest", "analytics", "dashboard", "lab", "tests", "docs", "bench")
    return [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]


def test_the_client_loads_nothing_of_the_server() -> None:
    script = (
        "import sys, tailtrace.instrumentation\n"
        f"print(*sorted(name for name in {HEAVY!r} if name in sys.modules))\n"
        "print(*sorted(name for name in sys.modules if name.startswith('tailtrace.') and name.split('.')[1] in "
        "('ingest', 'analytics', 'dashboard', 'lab', 'cli')))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert shown == "\n\n"


def test_data_flows_one_way() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    if not Path(command[0]).exists():
        pytest.skip("import-linter is not installed")
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert outcome.returncode == 0, outcome.stdout


def test_no_file_knows_the_machine_it_was_made_on() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.decode(errors='replace').strip()[:120]}"
        for path in tracked()
        if path.suffix not in BINARY and path != Path(__file__).resolve()
        for number, line in enumerate(path.read_bytes().splitlines(), start=1)
        if MACHINE.search(line)
    ]
    assert found == []


def test_installed_names_are_the_rooms_of_the_tree() -> None:
    """The folders at the root are installed below `tailtrace`, so that no `import ingest` is left in site-packages."""
    for room in ("instrumentation", "ingest", "analytics", "dashboard", "lab"):
        assert (ROOT / "tailtrace" / room).resolve() == ROOT / room


def test_files_are_short() -> None:
    """A file over 400 lines says at its head why it is one file."""
    rooms = ("tailtrace", "instrumentation", "ingest", "analytics", "dashboard", "lab")
    files = [path for room in rooms for path in (ROOT / room).rglob("*.py") if not path.is_symlink()]
    long = [path for path in files if len(path.read_text("utf-8").splitlines()) > 400]
    unexplained = [path for path in long if "one file" not in path.read_text("utf-8")[:2000]]
    assert [str(path.relative_to(ROOT)) for path in unexplained] == []
