"""A process that serves ClickHouse's HTTP interface, writable, over an engine of its own: the server of the tests."""

import os
import socket
import sys
from pathlib import Path

import uvicorn

from tailtrace.ingest.clickhouse_http import create_clickhouse_app
from tailtrace.ingest.store.embedded import EmbeddedStore


def main(directory: str, token: str, port: str = "0") -> None:
    """Serve on a port of 127.0.0.1, a free one unless given; it is the first line on stdout."""
    os.chdir(directory)  # the engine writes schemas that come as text below the working directory
    store = EmbeddedStore(Path(directory) / "data", memory_bytes=1_000_000_000)
    listener = socket.create_server(("127.0.0.1", int(port)))
    print(listener.getsockname()[1], flush=True)
    app = create_clickhouse_app(store, (lambda given: given == token) if token else None, writable=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
