"""Our own scripts and style sheets as one file each: twenty small files cost a cold browser twenty requests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Response

_ASSETS: Final = Path(__file__).resolve().parent / "assets"
_KINDS: Final = {"css": "text/css", "js": "text/javascript"}


def asset(kind: str) -> str:
    """All files of a kind (css, js), in the order of their names: each script relies on those before it."""
    return "\n".join(path.read_text("utf-8") for path in sorted(_ASSETS.glob(f"*.{kind}")))


def asset_address(kind: str) -> str:
    """Where `add_assets` serves them; another content has another address."""
    return f"/assets/all.{kind}?m={hashlib.sha256(asset(kind).encode()).hexdigest()[:12]}"


def add_assets(server: FastAPI) -> None:
    """GET /assets/all.css and /assets/all.js."""
    for kind, media_type in _KINDS.items():
        _add(server, kind, media_type)


def _add(server: FastAPI, kind: str, media_type: str) -> None:
    body = asset(kind)

    @server.get(f"/assets/all.{kind}", include_in_schema=False)
    async def whole() -> Response:
        return Response(body, media_type=media_type)
