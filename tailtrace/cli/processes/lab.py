"""The demo's load, in a process of its own: made history through the OTLP door, then a live service in miniature.

Started by the demo as `python -m tailtrace.cli.processes.lab`; tells its progress as one JSON object a line on stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from tailtrace.cli import exit_code
from tailtrace.cli.processes.lifeline import die_with_parent
from tailtrace.errors import TailtraceError

if TYPE_CHECKING:
    from tailtrace.lab import Scenario

_SENDERS = 3
_AHEAD = 8
"""Bodies made but not yet taken by a sender: enough to keep the senders busy, little enough to hold in memory."""
_TELL_S = 0.5


def main() -> None:
    """Entry point of the child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--live-scenario", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--rate", type=float, required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))  # it holds nothing that is worth an orderly end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(arguments.parent)
    try:
        from tailtrace.lab import Scenario

        if arguments.hours > 0:
            scenario = Scenario.load(arguments.scenario)
            send_history(arguments.endpoint, scenario, seed=arguments.seed, hours=arguments.hours)
        if arguments.rate > 0:
            live = Scenario.load(arguments.live_scenario)
            asyncio.run(run_live(arguments.endpoint, live, rate=arguments.rate, seed=arguments.seed))
        tell("done")
    except TailtraceError as error:
        tell("failed", message=str(error))
        os._exit(exit_code(error))
    except BrokenPipeError:
        os._exit(0)


def tell(event: str, **fields: Any) -> None:
    """One line of progress to the parent."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def send_history(endpoint: str, scenario: Scenario, *, seed: int, hours: float) -> None:
    """Make the history that ends now and send it, several bodies at a time."""
    from tailtrace.cli.otlp_sender import OtlpSender
    from tailtrace.lab import history

    sender = OtlpSender(endpoint, os.environ.get("TAILTRACE_TOKEN", ""), connections=_SENDERS)
    bodies: queue.Queue[bytes | None] = queue.Queue(_AHEAD)
    failures: list[TailtraceError] = []
    sent = [0] * _SENDERS

    def send(number: int) -> None:
        while (body := bodies.get()) is not None:
            if failures:
                continue
            try:
                sender.send("traces", body, 0)
                sent[number] += len(body)
            except TailtraceError as error:
                failures.append(error)

    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(_SENDERS)]
    for thread in threads:
        thread.start()
    started = told = time.monotonic()
    tell("history", sent_bytes=0, elapsed_s=0.0)
    for body in history(scenario, end_unix_ns=time.time_ns(), hours=hours, seed=seed):
        bodies.put(body)
        if failures:
            break
        now = time.monotonic()
        if now - told >= _TELL_S:
            told = now
            tell("history", sent_bytes=sum(sent), elapsed_s=round(now - started, 1))
    for _ in threads:
        bodies.put(None)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    tell("history", sent_bytes=sum(sent), elapsed_s=round(time.monotonic() - started, 1), finished=True)


async def run_live(endpoint: str, scenario: Scenario, *, rate: float, seed: int) -> None:
    """The live lab, until the process is told to stop."""
    from tailtrace.lab.live import LiveLab

    tell("live", rate=rate)
    await LiveLab(seed).run(endpoint, scenario, rate, asyncio.Event())


if __name__ == "__main__":
    main()
