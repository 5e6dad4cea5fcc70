"""A process that submits bodies and says which were acknowledged, until somebody kills it."""

import sys
from pathlib import Path

from bodies import trace_body

from tailtrace.ingest.pipeline import Pipeline
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import open_store


def main(directory: str, first: int) -> None:
    """Submit traces whose ids are the numbers from `first` on; print each number once its body is acknowledged."""
    settings = ServerSettings(data=Path(directory))
    pipeline = Pipeline(open_store(settings), settings.data / "journal", settings)
    pipeline.start()
    number = first
    while True:
        batch = range(number, number + 20)
        futures = [pipeline.submit("traces", trace_body(3, trace_id=n.to_bytes(16, "big")), 3) for n in batch]
        for n, future in zip(batch, futures, strict=True):
            future.result()
            print(n, flush=True)
        number += 20


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
