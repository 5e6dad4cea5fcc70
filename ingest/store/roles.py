"""What each role may use of the engine: sized for a product that shares a machine with the service it watches."""

from collections.abc import Mapping
from typing import Any

from tailtrace.ingest.store.protocol import Role

_MIB = 1024 * 1024

# Formats of results as this product reads them, and one clock.
SESSION: Mapping[str, Any] = {
    "session_timezone": "UTC",
    "output_format_arrow_string_as_string": 1,
    "output_format_arrow_low_cardinality_as_dictionary": 0,
    "output_format_arrow_compression_method": "none",
}

LIMITS: Mapping[Role, Mapping[str, Any]] = {
    "insert": {"max_memory_usage": 700 * _MIB},
    "jobs": {
        # What a job inserts is grouped already; merging each block once more costs three times the insert.
        "optimize_on_insert": 0,
        # Compiling sums of 35 columns takes longer than all that an insert's views have to add up.
        "compile_aggregate_expressions": 0,
        "max_memory_usage": 600 * _MIB,
        "max_bytes_before_external_group_by": 300 * _MIB,
        "max_bytes_before_external_sort": 300 * _MIB,
    },
    "ui": {
        "max_memory_usage": 400 * _MIB,
        "max_bytes_before_external_group_by": 200 * _MIB,
        "max_bytes_before_external_sort": 200 * _MIB,
        "max_execution_time": 60,
    },
}

# A stranger's query: rows, time and memory are bounded, and nothing can be changed, not even a setting.
GUEST: Mapping[str, Any] = {
    **LIMITS["ui"],
    "max_execution_time": 30,
    "max_result_rows": 1_000_000,
    "max_result_bytes": 256 * _MIB,
    "readonly": 1,
}
