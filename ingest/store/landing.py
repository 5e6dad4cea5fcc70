"""Where a signal's OTLP bodies land: tables that store nothing, whose views flatten what the engine decoded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailtrace.errors import ConfigError
from tailtrace.ingest.store.protocol import Signal

SCHEMA_FOLDER = Path(__file__).resolve().parent.parent / "schema"


@dataclass(frozen=True, slots=True)
class Landing:
    """The landing table of one signal and the protobuf message that its rows are."""

    table: str
    proto: str
    message: str

    @property
    def proto_path(self) -> Path:
        return SCHEMA_FOLDER / self.proto

    @property
    def proto_text(self) -> str:
        """The schema without its comments: over HTTP it travels in the address."""
        return re.sub(r"\s*(//[^\n]*)?\n\s*", "\n", self.proto_path.read_text("utf-8")).strip()


LANDINGS: Mapping[Signal, Landing] = {
    "traces": Landing("otlp_traces", "otlp_trace.proto", "ExportTraceServiceRequest"),
    "metrics": Landing("otlp_metrics", "otlp_metrics.proto", "ExportMetricsServiceRequest"),
    "logs": Landing("otlp_logs", "otlp_logs.proto", "ExportLogsServiceRequest"),
}


def landing(signal: Signal) -> Landing:
    """The landing of `signal`; ConfigError for one that is not stored yet."""
    try:
        return LANDINGS[signal]
    except KeyError:
        raise ConfigError(f"no table for the signal {signal!r}; stored are {', '.join(LANDINGS)}") from None


# A body is one row and a segment one block, so a retry of the segment meets the very same blocks and tokens. Backfills
# may span any number of days, hence no limit on partitions (the engine's default refuses more than 100).
SEGMENT_SETTINGS: Mapping[str, Any] = {
    "input_format_protobuf_oneof_presence": 1,
    "input_format_parallel_parsing": 0,
    "max_insert_threads": 1,
    "max_partitions_per_insert_block": 0,
    # A third of a small insert is the optimiser's search for plans that the views do not have.
    "query_plan_enable_optimizations": 0,
    # The first merge builds the skip indexes. Until then a search by attribute reads these, the newest, parts whole.
    "materialize_skip_indexes_on_insert": 0,
}


# What a program inserts holds no nulls where a column takes none; to look for them takes a tenth of an insert.
ARROW_SETTINGS: Mapping[str, Any] = {"input_format_null_as_default": 0}


def deduplication(token: str | None) -> dict[str, Any]:
    """Settings that make an insert with this token happen once, in its table and in every view that hangs on it."""
    if token is None:
        return {}
    return {"insert_deduplication_token": token, "deduplicate_blocks_in_dependent_materialized_views": 1}
