"""Requests that do not come over HTTP: `python worker.py` sends ten through a queue to a thread."""

import queue
import threading
import time

from tailtrace.instrumentation import (
    flush,
    inject,
    instrument,
    joined,
    losses,
    mark,
    request,
    shutdown,
    stage,
    stage_from,
    stream,
)

instrument("example-worker")
jobs: queue.Queue[dict[str, str] | None] = queue.Queue()


def serve() -> None:
    while (job := jobs.get()) is not None:
        # The headers came with the message: what runs here is part of the request that sent it.
        with joined(job):
            stage_from(int(job["queued"]), "queue")
            with stage("forward"):
                time.sleep(0.002)


thread = threading.Thread(target=serve)
thread.start()
for _ in range(10):
    with request("generate", tenant="example") as record:
        jobs.put({**inject(), "queued": str(mark())})
        for _ in stream(iter("tokens")):
            time.sleep(0.001)
        record.set("gen_ai.usage.output_tokens", 6)
jobs.put(None)
thread.join()
taken = flush(2)
print("sent" if taken else f"no receiver took them; lost so far: {losses()}")
shutdown(1)
