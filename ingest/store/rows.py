"""Arrow results as plain Python rows."""

from typing import Any

import pyarrow as pa


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type with timestamps in microseconds, the finest that a Python datetime holds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz or "UTC")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain(f.type), f.nullable) for f in kind])
    return kind


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """One dict a row. Timestamps become aware UTC datetimes, cut to microseconds; maps become dicts (last key wins)."""
    schema = pa.schema([pa.field(f.name, _plain(f.type), f.nullable) for f in table.schema])
    if schema != table.schema:
        table = table.cast(schema, safe=False)
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="lossy")
    return rows
