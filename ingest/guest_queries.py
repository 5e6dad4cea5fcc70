"""Which statements a stranger may send to the embedded database.

The engine's read-only mode refuses what changes tables. It lets through what reaches beside them: files and addresses
read by functions, results written to files, queries of others stopped. Those are refused here, by reading the words of
the statement.
"""

import re

from tailtrace.errors import Rejected

_READS = frozenset(("SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXISTS", "EXPLAIN"))
_NOISE = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUOTES = re.compile(r"[`\"]")
_OUTSIDE = re.compile(
    r"\b((?:file|url|s3|gcs|oss|cosn|hdfs|azure|delta|hudi|iceberg|paimon|mongo|remote|cluster|ytsaurus|arrowflight|ai)\w*"
    r"|mysql|postgresql|redis|sqlite|odbc|jdbc|executable|python|dictionary|input|merge|loop|getserversetting)\s*\(",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z_]+")


def check_guest_query(sql: str) -> None:
    """Rejected, with the reason, for a statement that does anything but read the tables of this database."""
    plain = _QUOTES.sub("", _NOISE.sub(" ", sql)).strip().rstrip(";").strip()
    first = _WORD.match(plain.lstrip("("))
    if first is None or first[0].upper() not in _READS:
        raise Rejected(f"only reading statements are served here ({', '.join(sorted(_READS))})")
    if ";" in plain:
        raise Rejected("one statement at a time")
    if re.search(r"\bINTO\b", plain, re.IGNORECASE):
        raise Rejected("results are not written to files")
    outside = _OUTSIDE.search(plain)
    if outside is not None:
        raise Rejected(f"{outside[1]}() reaches outside of the tables of this database")
