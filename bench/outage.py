"""A ClickHouse server that is gone for minutes, under load: senders are answered all the time, and nothing is lost.

Two receivers share a server. It is killed with kill -9, stays away, and comes back; the receivers take telemetry into
their journals meanwhile. At the end every acknowledged span is counted, and how long the journals took to drain.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from faults import BAD_EVERY, SPANS, Sender
from fleet import fleet
from harness import arguments, report, wait_until, workspace

SENDERS = 4


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=180.0, help="length of the outage")
    options = parser.parse_args()
    outage_s = 5.0 if options.quick else options.seconds
    with workspace(options.work) as work, fleet(work / "outage", 2) as running:
        stop = threading.Event()
        ports = [running.otlp_ports[lane % 2] for lane in range(SENDERS)]
        senders = [Sender(port, lane + 1, options.seed, stop) for lane, port in enumerate(ports)]
        for sender in senders:
            sender.start()

        def acknowledged() -> int:
            return sum(len(sender.numbers) for sender in senders)

        wait_until(lambda: acknowledged() >= 50, 120, "traffic")
        running.server.kill()
        before, began = acknowledged(), time.monotonic()
        time.sleep(outage_s)
        meanwhile = acknowledged() - before
        running.server.start()
        away_s = time.monotonic() - began
        time.sleep(2.0)
        stop.set()
        for sender in senders:
            sender.join(60)
        bodies = acknowledged()
        stored = "SELECT count() FROM otel_traces WHERE ServiceName = 'faults'"
        drained_s = wait_until(lambda: running.scalar(stored) >= bodies * SPANS, 600, "storing", 0.2)
        spans = running.scalar(stored)
        distinct = running.scalar(stored.replace("count()", "uniqExact(TraceId, SpanId)"))
    rejected, sent = sum(sender.rejected for sender in senders), sum(sender.sent for sender in senders)
    print(
        f"away {away_s:.0f} s: {meanwhile:,} bodies acknowledged meanwhile, stored {drained_s:.1f} s after the load; "
        f"sent {sent:,} = stored {spans:,} + rejected {rejected:,} (every {BAD_EVERY}. body holds one)"
    )
    lost, doubled = max(0, bodies * SPANS - distinct), spans - distinct
    report(
        "outage",
        options.seed,
        {"away_s": away_s, "acked": bodies, "acked_meanwhile": meanwhile, "drained_s": drained_s, "lost": lost,
         "doubled": doubled},
    )  # fmt: skip
    if lost or doubled or not meanwhile:
        sys.exit(json.dumps({"lost": lost, "doubled": doubled, "acked_meanwhile": meanwhile}))


if __name__ == "__main__":
    main()
