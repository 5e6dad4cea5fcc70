"""Python values as server-side query parameters."""

from typing import Any

from clickhouse_connect import common
from clickhouse_connect.driver.binding import bind_query

from tailtrace.ingest.store.protocol import Parameters

# A dict is a Map here; the library's default would make it JSON text.
common.set_setting("dict_parameter_format", "map")


def bind(sql: str, parameters: Parameters) -> tuple[str, dict[str, Any]]:
    """The statement and the escaped text of each parameter, by its bare name."""
    statement, bound = bind_query(sql, dict(parameters or {}))
    if isinstance(statement, bytes):
        raise TypeError("binary parameters are not supported")
    return statement, {name.removeprefix("param_"): value for name, value in bound.items()}
