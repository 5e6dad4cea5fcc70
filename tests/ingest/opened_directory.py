"""A process that opens a data directory with this release, adds a trace, and says what is in it."""

import json
import sys
from pathlib import Path

from bodies import trace_body

from tailtrace.ingest.framing import frame
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import open_store

TABLES = ("otel_traces", "otel_traces_trace_id_ts", "span_inbox", "otel_logs", "otel_metrics_gauge", "otel_metrics_sum")


def main(directory: str) -> None:
    """Print rows by table, and the newest schema version."""
    store = open_store(ServerSettings(data=Path(directory)))
    body = trace_body(2)
    path = Path(directory) / "new.otlp"
    path.write_bytes(frame(body) + body)
    store.insert_segment("traces", path, "new")
    rows = {table: store.query(f"SELECT count() AS n FROM {table} FINAL" if table.endswith("_ts") else
            f"SELECT count() AS n FROM {table}")[0]["n"] for table in TABLES}  # fmt: skip
    version = store.query("SELECT max(Version) AS v FROM schema_version")[0]["v"]
    store.close()
    print(json.dumps({"rows": rows, "version": version}))


if __name__ == "__main__":
    main(sys.argv[1])
