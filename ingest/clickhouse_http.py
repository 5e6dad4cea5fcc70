"""ClickHouse's HTTP interface over the embedded database, for Grafana, clickhouse clients and `tailtrace sql`.

Read-only, with a token, row and time limits. Results are whole: nothing is streamed.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tailtrace.errors import Rejected, StoreError, TailtraceError
from tailtrace.ingest.guest_queries import check_guest_query
from tailtrace.ingest.store.embedded import EmbeddedStore
from tailtrace.ingest.store.statements import settings_clause

_MAX_BODY_BYTES = 64 * 1024 * 1024
_CODE = re.compile(r"Code: (\d+)")
_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*\Z", re.IGNORECASE)
_INSERT = re.compile(r"\s*(INSERT\s+INTO\s.+?)\s+FORMAT\s+(\w+)\s*\Z", re.IGNORECASE | re.DOTALL)
_SELECT = re.compile(r"\s*(SELECT|WITH)\b", re.IGNORECASE)
_ACCESS_DENIED, _BAD_REQUEST = 516, 62

# What a request may say that is no setting of the engine.
_TRANSPORT = frozenset(
    {
        *("query", "database", "default_format", "user", "password", "query_id", "role", "quota_key"),
        *(
            "session_id",
            "session_timeout",
            "session_check",
            "compress",
            "decompress",
            "wait_end_of_query",
            "buffer_size",
        ),
        *("client_protocol_version", "send_progress_in_http_headers", "http_headers_progress_interval_ms"),
        *("enable_http_compression", "add_http_cors_header"),
    }
)


def create_clickhouse_app(
    store: EmbeddedStore, admits: Callable[[str], bool] | None = None, *, writable: bool = False
) -> Starlette:
    """The interface as an ASGI app. `admits` judges a token, None admits all; `writable` is for tests of a server."""
    front = _Front(store, admits, writable)
    return Starlette(
        routes=[
            Route("/ping", lambda _: PlainTextResponse("Ok.\n")),
            Route("/", front.answer, methods=["GET", "POST"]),
        ]
    )


class _Front:
    def __init__(self, store: EmbeddedStore, admits: Callable[[str], bool] | None, writable: bool) -> None:
        self._store = store
        self._admits = admits
        self._writable = writable

    async def answer(self, request: Request) -> Response:
        """One statement."""
        if not self._admitted(request):
            return _failure(401, _ACCESS_DENIED, "wrong or missing token: give it as the password of any user")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                return _failure(413, _BAD_REQUEST, f"the statement is over {_MAX_BODY_BYTES} bytes")
        if not body and "query" not in request.query_params:
            return PlainTextResponse("Ok.\n")
        query, statement = dict(request.query_params), bytes(body)
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            query, statement = query | _form_fields(request.headers["content-type"], statement), b""
        return await run_in_threadpool(self._run, query, statement, request.headers)

    def _admitted(self, request: Request) -> bool:
        if self._admits is None:
            return True
        given = request.headers.get("x-clickhouse-key") or request.query_params.get("password") or ""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = credentials
        elif scheme.lower() == "basic":
            try:
                given = base64.b64decode(credentials).decode("utf-8").partition(":")[2]
            except ValueError:
                return False
        return self._admits(given)

    def _run(self, query: Mapping[str, str], body: bytes, headers: Mapping[str, str]) -> Response:
        parameters = {name.removeprefix("param_"): value for name, value in query.items() if name.startswith("param_")}
        default_format = headers.get("x-clickhouse-format") or query.get("default_format") or "TabSeparated"
        try:
            settings = {k: v for k, v in query.items() if k not in _TRANSPORT and not k.startswith("param_")}
            insert = _INSERT.match(query.get("query", ""))
            if insert is not None and self._writable:
                self._store.raw_insert(insert[1], settings, insert[2], _pieces(body))
                return _success(b"", default_format)
            sql = query.get("query", "") + body.decode("utf-8")
            if self._writable:
                clause = settings_clause(settings) if _SELECT.match(sql) else ""
                result = self._store.raw(sql + clause, parameters, default_format, role="jobs")
            else:
                check_guest_query(sql)
                result = self._store.raw(sql, parameters, default_format)
        except UnicodeDecodeError:
            return _failure(400, _BAD_REQUEST, "the statement is not UTF-8 text")
        except Rejected as error:
            return _failure(403, _ACCESS_DENIED, str(error))
        except StoreError as error:
            code = _CODE.search(str(error))
            return _failure(500, int(code[1]) if code else 0, str(error))
        except TailtraceError as error:
            return _failure(400, _BAD_REQUEST, str(error))
        named = _FORMAT.search(sql)
        return _success(result, named[1] if named else default_format)


def _form_fields(content_type: str, body: bytes) -> dict[str, str]:
    """The fields of a form: clickhouse-connect sends statement and parameters so when they are too long for a URL."""
    form = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n" + body)
    fields: dict[str, str] = {}
    for part in form.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            fields[name] = content.decode("utf-8", "replace")
    return fields


def _pieces(body: bytes, size: int = 4 * 1024 * 1024) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def _headers(extra: Mapping[str, str]) -> dict[str, str]:
    return {
        "X-ClickHouse-Server-Display-Name": "tailtrace",
        "X-ClickHouse-Timezone": "UTC",
        "X-ClickHouse-Query-Id": str(uuid4()),
        "X-ClickHouse-Summary": "{}",
        **extra,
    }


def _success(result: Any, output_format: str) -> Response:
    headers = _headers({"X-ClickHouse-Format": output_format})
    return Response(result, media_type="application/octet-stream", headers=headers)


def _failure(status: int, code: int, text: str) -> Response:
    text = text if text.startswith("Code: ") else f"Code: {code}. DB::Exception: {text}"
    return PlainTextResponse(text + "\n", status, headers=_headers({"X-ClickHouse-Exception-Code": str(code)}))
