"""A process that takes up a restored data directory with its journal, and says what is in it."""

import json
import sys
from pathlib import Path

from tailtrace.ingest.pipeline import Pipeline
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import open_store


def main(directory: str) -> None:
    """Print spans, distinct spans, traces with bounds, spans that wait for judgement, and files left in the journal."""
    data = Path(directory)
    settings = ServerSettings(data=data, min_free_bytes=0)
    store = open_store(settings)
    pipeline = Pipeline(store, data / "journal", settings)
    pipeline.start()
    pipeline.flush()
    pipeline.stop()
    found = store.query("SELECT count() AS spans, uniqExact(TraceId, SpanId) AS distinct FROM otel_traces")[0]
    found["bounds"] = store.query("SELECT uniqExact(TraceId) AS n FROM otel_traces_trace_id_ts")[0]["n"]
    found["inbox"] = store.query("SELECT count() AS n FROM span_inbox")[0]["n"]
    found["journal"] = len(list((data / "journal").rglob("*.otlp")))
    store.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
