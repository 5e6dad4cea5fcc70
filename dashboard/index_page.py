"""The HTML that every page starts from, and ends with: the page as the server has drawn it meanwhile. Scripts in the
head set the theme before anything is painted; they stand in the page itself, allowed by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final

from tailtrace.dashboard.colours import stage_css
from tailtrace.dashboard.own_assets import asset_address
from tailtrace.version import VERSION

_STATIC: Final = Path(__file__).resolve().parent / "static"
_FIRST: Final = ("theme.js", "first.js")
FIRST_DRAWING: Final = "<!-- first drawing -->"

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{%title%}</title>
<link rel="icon" type="image/svg+xml" href="/static/icon.svg">
FIRST_SCRIPTS
<style>STAGE_CSS</style>
{%css%}
<link rel="stylesheet" href="OWN_CSS">
</head>
<body>
<noscript>This page needs JavaScript. The same answers are under /api/v1.</noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}<script src="OWN_JS"></script>{%renderer%}</footer>
FIRST_DRAWING
</body>
</html>"""


def index_page() -> str:
    """Dash's index template with the stage colours in it; what changes with the version alone is kept by browsers."""
    plotly = f"/static/plotly-cartesian.min.js?m={VERSION}"
    first = "\n".join(f'<script data-plotly="{plotly}">{text}</script>' for text in _first_scripts())
    page = (
        _PAGE.replace("FIRST_DRAWING", FIRST_DRAWING).replace("FIRST_SCRIPTS", first).replace("STAGE_CSS", stage_css())
    )
    return page.replace("OWN_CSS", asset_address("css")).replace("OWN_JS", asset_address("js"))


def first_drawing_tag(answer: str) -> str:
    """An answer of Dash's drawing callback, as JSON, where static/first.js looks for it."""
    safe = answer.replace("<", "\\u003c")
    return f'<script type="application/json" id="first-drawing">{safe}</script>'


def first_script_hashes() -> tuple[str, ...]:
    """What a Content-Security-Policy must allow for them."""
    digests = (hashlib.sha256(text.encode()).digest() for text in _first_scripts())
    return tuple(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _first_scripts() -> list[str]:
    return [(_STATIC / name).read_text("utf-8") for name in _FIRST]
