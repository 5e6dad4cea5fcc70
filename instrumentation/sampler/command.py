"""`tailtrace sample`: the sampler as a process. Standard library, this client and, for GPUs, pynvml."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from tailtrace.errors import ConfigError

SERVICES = r"vllm|sglang|tritonserver|text-generation|dynamo|trtllm|litellm|ray::|llama|tailtrace run"
"""Command lines watched where nothing else is asked for; processes on a GPU are watched in any case."""

_MOST_FILES = 65536


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(
        prog="tailtrace sample",
        description="Read GPU, link and host counters of this machine and send them as OTLP metrics. One a host.",
    )
    made.add_argument("--endpoint", help="OTLP receiver (OTEL_EXPORTER_OTLP_ENDPOINT; default http://127.0.0.1:4318)")
    made.add_argument("--token", help="sent as Authorization: Bearer (better: TAILTRACE_TOKEN)")
    made.add_argument("--interval", type=float, default=0.25, metavar="S", help="fast tier, 0.1 to 10 s (0.25)")
    made.add_argument("--pid", type=int, action="append", default=[], help="watch this process and its children")
    made.add_argument("--match", default=SERVICES, metavar="REGEX", help="watch processes by their command line")
    made.add_argument("--no-gpu", action="store_true", help="host counters only")
    made.add_argument("--place", default="tailtrace-sampler", help=argparse.SUPPRESS)
    made.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; gives the exit code. Raises ConfigError for what cannot work."""
    options = parser().parse_args(arguments)
    if not 0.1 <= options.interval <= 10:
        raise ConfigError(f"--interval: expected 0.1 to 10 seconds, got {options.interval:g}")
    try:
        pattern = re.compile(options.match) if options.match else None
    except re.error as error:
        raise ConfigError(f"--match: expected a regular expression, got {options.match!r} ({error})") from None

    from tailtrace.instrumentation.metrics import MetricsExporter
    from tailtrace.instrumentation.resource import build_resource
    from tailtrace.instrumentation.sampler.sampler import SEND_S, Sampler
    from tailtrace.instrumentation.sampler.single import take_place
    from tailtrace.instrumentation.settings import read_settings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr)
    settings = read_settings(endpoint=options.endpoint, token=options.token)
    settings.role = "sampler"
    settings.interval_s = SEND_S
    settings.service_name = settings.service_name or "tailtrace-sampler"
    place = take_place(options.place)
    exporter = MetricsExporter(settings, build_resource(settings))
    sampler = Sampler(
        exporter.put, interval_s=options.interval, gpu=not options.no_gpu, pids=options.pid, pattern=pattern,
        losses=exporter.losses.snapshot,
    )  # fmt: skip

    def stop(number: int, frame: FrameType | None) -> None:
        sampler.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if options.parent is not None:
        end_with(options.parent)
    _allow_open_files()
    exporter.start()
    gc.freeze()  # what is loaded by now stays: no use in walking it again and again
    try:
        sampler.run()
    finally:
        exporter.shutdown(settings.shutdown_s)
        place.close()
    if sampler.driver_replaced:
        # Only a fresh process loads the library that fits the new driver.
        os.execv(sys.executable, [sys.executable, "-m", "tailtrace", "sample", *arguments])
    return 0


def _allow_open_files() -> None:
    """A file is kept open for each thread that is watched, and a service has thousands: 1,024 would not do."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def end_with(parent: int) -> None:
    """SIGTERM to this process when its parent dies (Linux); at once where it is gone already."""
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
