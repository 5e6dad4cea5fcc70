"""A stand-in server for the read commands, and a way to run the command line inside the test process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tailtrace import cli


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def tailtrace(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs `tailtrace ARGUMENTS` as the installed command would."""
    for name in ("TAILTRACE_URL", "TAILTRACE_TOKEN", "TAILTRACE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr("sys.argv", ["tailtrace", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        code = stop.value.code
        assert isinstance(code, int)
        return Outcome(code, captured.out, captured.err)

    return run


@dataclass
class Stub:
    """Answers by path; keeps what it was asked. An answer is (status, headers, body)."""

    url: str = ""
    answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def json(self, path: str, body: Any, status: int = 200) -> None:
        """Queue an answer for a path; the last one stays."""
        entry = (status, {"content-type": "application/json"}, json.dumps(body).encode())
        self.answers.setdefault(path, []).append(entry)


@pytest.fixture
def stub() -> Iterator[Stub]:
    state = Stub()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            state.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            known = state.answers.get(self.path.partition("?")[0])
            error = json.dumps({"error": {"code": "not_found", "message": "nothing is stored there"}}).encode()
            status, headers, data = (404, {}, error) if not known else known.pop(0) if len(known) > 1 else known[0]
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()
