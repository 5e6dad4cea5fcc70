"""A middleware for vLLM's `--middleware`: a look-up of a key that takes as long as `bench/injected.py` says."""

from __future__ import annotations

import asyncio

from delays import delay_s


class KeyAuthMiddleware:
    """Waits before it passes a call on."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        seconds = delay_s("auth") if scope["type"] == "http" else 0.0
        if seconds:
            await asyncio.sleep(seconds)
        await self.app(scope, receive, send)
