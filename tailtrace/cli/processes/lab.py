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
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from tailtrace.cli import exit_code
from tailtrace.cli.processes.lifeline import die_with_parent
from tailtrace.errors import TailtraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    parser.add_argument(
        "--counters-until", type=int, default=0, help="send only the counters of the history ending then"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))  # it holds nothing that is worth an orderly end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(arguments.parent)
    try:
        from tailtrace.lab import Scenario

        if arguments.counters_until:
            scenario = Scenario.load(arguments.scenario)
            send_counters(
                arguments.endpoint,
                scenario,
                end_unix_ns=arguments.counters_until,
                hours=arguments.hours,
                seed=arguments.seed,
            )
            return
        if arguments.hours > 0:
            scenario = Scenario.load(arguments.scenario)
            end_unix_ns = time.time_ns()
            send_history(
                arguments.endpoint, scenario, end_unix_ns=end_unix_ns, seed=arguments.seed, hours=arguments.hours
            )
            start_counters(end_unix_ns)
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


def send_history(endpoint: str, scenario: Scenario, *, end_unix_ns: int, seed: int, hours: float) -> None:
    """Make the history that ends then and send it, several bodies at a time."""
    from tailtrace.lab import history

    started = told = time.monotonic()
    tell("history", sent_bytes=0, elapsed_s=0.0)
    sent = 0
    for sent in _sending(endpoint, "traces", history(scenario, end_unix_ns=end_unix_ns, hours=hours, seed=seed)):
        now = time.monotonic()
        if now - told >= _TELL_S:
            told = now
            tell("history", sent_bytes=sent, elapsed_s=round(now - started, 1))
    tell("history", sent_bytes=sent, elapsed_s=round(time.monotonic() - started, 1), finished=True)


def start_counters(end_unix_ns: int) -> None:
    """The counters of the same run, made by a process of their own, so that the live lab keeps its time."""
    command = [sys.executable, "-m", "tailtrace.cli.processes.lab", *sys.argv[1:]]
    own = [f"--parent={os.getpid()}", f"--counters-until={end_unix_ns}"]
    subprocess.Popen([*command, *own], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def send_counters(endpoint: str, scenario: Scenario, *, end_unix_ns: int, seed: int, hours: float) -> None:
    """What samplers would have read in the history that ended then; it gives way to everything else."""
    from tailtrace.lab import history_metrics

    os.nice(10)
    for _ in _sending(endpoint, "metrics", history_metrics(scenario, end_unix_ns=end_unix_ns, hours=hours, seed=seed)):
        pass


def _sending(endpoint: str, signal_name: Literal["traces", "metrics"], made: Iterator[bytes]) -> Iterator[int]:
    """Send each body as it is made; gives the bytes sent so far after each, and all of them at the end."""
    from tailtrace.cli.otlp_sender import OtlpSender

    sender = OtlpSender(endpoint, os.environ.get("TAILTRACE_TOKEN", ""), connections=_SENDERS)
    bodies: queue.Queue[bytes | None] = queue.Queue(_AHEAD)
    failures: list[TailtraceError] = []
    sent = [0] * _SENDERS

    def send(number: int) -> None:
        while (body := bodies.get()) is not None:
            if failures:
                continue
            try:
                sender.send(signal_name, body, 0)
                sent[number] += len(body)
            except TailtraceError as error:
                failures.append(error)

    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(_SENDERS)]
    for thread in threads:
        thread.start()
    for body in made:
        bodies.put(body)
        if failures:
            break
        yield sum(sent)
    for _ in threads:
        bodies.put(None)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    yield sum(sent)


async def run_live(endpoint: str, scenario: Scenario, *, rate: float, seed: int) -> None:
    """The live lab, until the process is told to stop."""
    from tailtrace.lab.live import LiveLab

    tell("live", rate=rate)
    await LiveLab(seed).run(endpoint, scenario, rate, asyncio.Event())


if __name__ == "__main__":
    main()
