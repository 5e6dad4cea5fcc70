"""`python -m tailtrace.lab`: run a scenario against an OTLP endpoint until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence

from tailtrace.errors import TailtraceError
from tailtrace.lab.live import LiveLab
from tailtrace.lab.paced import PacedLab
from tailtrace.lab.scenario import Scenario, list_scenarios


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tailtrace.lab", description=__doc__)
    parser.add_argument("--endpoint", default="http://127.0.0.1:4318", help="OTLP/HTTP receiver")
    parser.add_argument("--scenario", default="", help="name or .toml file (default: live, with --paced: healthy)")
    parser.add_argument("--rate", type=float, help="requests a second in all (default: the scenario's)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--for", dest="seconds", type=float, help="stop after so many seconds")
    parser.add_argument(
        "--paced", action="store_true", help="simulate in step with the clock instead of running servers"
    )
    parser.add_argument("--list", action="store_true", help="print the scenarios and leave")
    arguments = parser.parse_args(argv)
    if arguments.list:
        for name, title in list_scenarios().items():
            print(f"{name:24s} {title}")
        return 0
    try:
        scenario = Scenario.load(arguments.scenario or ("healthy" if arguments.paced else "live"))
        lab = PacedLab(arguments.seed, _headers()) if arguments.paced else LiveLab(arguments.seed)
        asyncio.run(_run(lab, arguments, scenario))
    except TailtraceError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    print(json.dumps(lab.report()))
    return 0


def _headers() -> dict[str, str]:
    token = os.environ.get("TAILTRACE_TOKEN", "")
    return {"authorization": f"Bearer {token}"} if token else {}


async def _run(lab: PacedLab | LiveLab, arguments: argparse.Namespace, scenario: Scenario) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if arguments.seconds:
        loop.call_later(arguments.seconds, stop.set)
    await lab.run(arguments.endpoint, scenario, arguments.rate, stop)


if __name__ == "__main__":
    sys.exit(main())
