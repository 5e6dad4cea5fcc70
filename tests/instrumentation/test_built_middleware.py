"""Middleware of an app whose stack was built before it is first called, as some servers do."""

from __future__ import annotations

from typing import Any

import pytest
from asgi_calls import call
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tailtrace.instrumentation import wrap_gateway
from tailtrace.instrumentation.testing import FakeClock, captured

pytestmark = pytest.mark.anyio


async def test_each_middleware_has_its_own_stage_and_order_is_kept() -> None:
    seen: list[str] = []

    class Waits:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            seen.append(type(self).__name__)
            now.advance_ms(7 if isinstance(self, KeyAuthMiddleware) else 3)
            await self.app(scope, receive, send)

    class KeyAuthMiddleware(Waits):
        pass

    class QuotaMiddleware(Waits):
        pass

    async def endpoint(request: Any) -> PlainTextResponse:
        now.advance_ms(11)
        return PlainTextResponse("x")

    app = Starlette(routes=[Route("/", endpoint)])
    app.add_middleware(KeyAuthMiddleware)
    app.add_middleware(QuotaMiddleware)
    app.middleware_stack = app.build_middleware_stack()
    with FakeClock() as now, captured() as spans:
        messages = await call(wrap_gateway(app), path="/", method="GET")
    assert messages[0]["status"] == 200
    assert seen == ["QuotaMiddleware", "KeyAuthMiddleware"]
    stages = {span.name: (span.end_unix_ns - span.start_unix_ns) / 1e6 for span in spans()}
    assert stages["rate_limit"] == 3
    assert stages["auth"] == 7
