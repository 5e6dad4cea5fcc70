"""The tools over HTTP as an assistant's client uses them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from dashboard_seed import TRACE
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store


class Client:
    """Just enough of a client: a message out, the answer's JSON back."""

    def __init__(self, store: Store, settings: ServerSettings, **changes: Any) -> None:
        app = create_app(store, settings.model_copy(update=changes))
        self.http = TestClient(app, base_url="http://127.0.0.1:8050")
        self._next = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        answer: dict[str, Any] = self.http.post("/mcp", json=message).json()
        assert answer["id"] == self._next
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return result


@pytest.fixture
def client(seeded: Store, settings: ServerSettings) -> Client:
    return Client(seeded, settings)


def test_a_client_introduces_itself_and_sees_the_tools(client: Client) -> None:
    hello = client.ask("initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "t"})["result"]
    assert (hello["protocolVersion"], hello["serverInfo"]["name"]) == ("2025-03-26", "tailtrace")
    assert client.ask("initialize", protocolVersion="1999-01-01")["result"]["protocolVersion"] == "2025-06-18"
    heard = client.http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (heard.status_code, heard.content) == (202, b"")
    tools = client.ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == [
        "search_requests", "explain_request", "why_slow", "compare", "whatif", "list_regressions",
    ]  # fmt: skip
    assert all(tool["inputSchema"]["type"] == "object" and tool["annotations"]["readOnlyHint"] for tool in tools)


def test_from_a_search_to_an_explanation(client: Client) -> None:
    found = client.call("search_requests", service="api", limit=2)["structuredContent"]
    assert (found["shown"], found["total"]) == (2, 120)
    assert [row["duration_ns"] for row in found["requests"]] == [220_000_000, 219_000_000]
    result = client.call("explain_request", trace_id=TRACE)
    assert result["isError"] is False
    explained = orjson.loads(result["content"][0]["text"])
    assert explained == result["structuredContent"]
    assert sum(one["duration_ns"] for one in explained["stages"]) == explained["request"]["duration_ns"] == 100_000_000


@pytest.mark.parametrize("tool", ["why_slow", "compare", "whatif", "list_regressions"])
def test_every_tool_answers_without_arguments(client: Client, tool: str) -> None:
    result = client.call(tool)
    assert result["isError"] is False, result["content"]


def test_what_cannot_be_answered_is_said(client: Client) -> None:
    missing = client.call("explain_request", trace_id="f" * 32)
    assert missing["isError"] is True
    assert "nothing is stored" in missing["content"][0]["text"]
    assert client.ask("tools/call", name="drop_all", arguments={})["error"]["code"] == -32602
    assert client.ask("tools/call", name="whatif", arguments={"sql": "1"})["error"]["code"] == -32602
    assert client.ask("no/such")["error"]["code"] == -32601
    broken = client.http.post("/mcp", content=b"{", headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, -32700)
    assert client.http.get("/mcp").status_code == 405


def test_the_token_guards_it(seeded: Store, settings: ServerSettings) -> None:
    http = Client(seeded, settings, token="open sesame").http
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert http.post("/mcp", json=message).status_code == 401
    answer = http.post("/mcp", json=message, headers={"Authorization": "Bearer open sesame"})
    assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
