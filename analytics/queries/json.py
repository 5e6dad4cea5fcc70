"""Answers as JSON bytes: dataclasses by field name, unknown as null, never NaN."""

from __future__ import annotations

from typing import Any

import orjson


def to_json(answer: Any) -> bytes:
    """JSON of an answer. Non-finite floats become null; numpy scalars and arrays are written as plain numbers."""
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
