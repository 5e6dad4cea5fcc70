"""Small pieces of SQL text: settings clauses, escaped literals, query ids in comments."""

import re
from collections.abc import Mapping
from typing import Any

from tailtrace.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_IN_SCOPE = re.compile(r": In scope .*(?=\. \([A-Z_0-9]+\))", re.DOTALL)
_QUERY_ID = re.compile(r"[A-Za-z0-9-]{1,64}\Z")


def literal(text: str) -> str:
    """A quoted string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(name: str) -> str:
    """A name that is safe in a statement; ConfigError otherwise."""
    if not _NAME.match(name):
        raise ConfigError(f"expected a plain SQL name, got {name!r}")
    return name


def identifier_path(name: str) -> str:
    """A column name, whose parts of a Nested column are joined by a dot."""
    return ".".join(identifier(part) for part in name.split("."))


def settings_clause(settings: Mapping[str, Any]) -> str:
    """`SETTINGS a = '1', ...` or nothing. Values are quoted: the engine converts them to the setting's own type."""
    if not settings:
        return ""
    return " SETTINGS " + ", ".join(
        f"{identifier(name)} = {literal(str(int(value) if isinstance(value, bool) else value))}"
        for name, value in settings.items()
    )


def query_id_comment(query_id: str) -> str:
    """The comment that names a query. The embedded engine drops real query ids, so they travel in the text."""
    if not _QUERY_ID.match(query_id):
        raise ConfigError(f"expected a query id of letters, digits and dashes, got {query_id!r}")
    return f"/* id:{query_id} */"


def named_query(query_id: str) -> str:
    """The condition on `system.processes` that finds a query by its id: in its comment, or in the setting that carries
    it where parameters are filled in. The engine writes such a statement anew, and its comments are lost.
    """
    pattern = literal(f"%{query_id_comment(query_id)}%")
    return f"(query LIKE {pattern} AND query NOT LIKE 'KILL%' OR Settings['log_comment'] = {literal(query_id)})"


def reason(error: BaseException) -> str:
    """The engine's own words, from its error code on, without the statement that it repeats."""
    text = str(error)
    return _IN_SCOPE.sub("", text[max(text.find("Code: "), 0) :].strip()) or "no reason given"
