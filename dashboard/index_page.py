"""The HTML that every page starts from. The theme is set by a script in the head, before anything is painted."""

from __future__ import annotations

from tailtrace.dashboard.colours import stage_css
from tailtrace.version import VERSION

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{%title%}</title>
<link rel="icon" type="image/svg+xml" href="/static/icon.svg">
<script src="/static/theme.js"></script>
<script src="/static/first.js?m=VERSION" data-plotly="/static/plotly-cartesian.min.js?m=VERSION"></script>
<style>STAGE_CSS</style>
{%css%}
</head>
<body>
<noscript>This page needs JavaScript. The same answers are under /api/v1.</noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>"""


def index_page() -> str:
    """Dash's index template with the stage colours in it; what changes with the version alone is kept by browsers."""
    return _PAGE.replace("STAGE_CSS", stage_css()).replace("VERSION", VERSION)
