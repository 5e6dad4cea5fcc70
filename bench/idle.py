"""What `tailtrace up` costs when nothing is sent to it: CPU and memory of its whole process tree."""

from __future__ import annotations

import time

from harness import Figure, arguments, cpu_seconds, report, rss_mib, workspace
from product import running
from sampler import sampler_cpu_pct


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds after start before measuring")
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds measured")
    options = parser.parse_args()
    settle, seconds = (5.0, 15.0) if options.quick else (options.settle, options.seconds)
    figures: dict[str, Figure] = {"cpu_pct": None, "rss_mib": None, "sampler_cpu_pct": None}
    with workspace(options.work) as work, running(work / "idle") as product:
        time.sleep(settle)
        used, started = cpu_seconds(product.pid), time.monotonic()
        time.sleep(seconds)
        figures["cpu_pct"] = 100 * (cpu_seconds(product.pid) - used) / (time.monotonic() - started)
        figures["rss_mib"] = rss_mib(product.pid)
        figures["sampler_cpu_pct"] = sampler_cpu_pct(work, seconds)
    report("idle", options.seed, figures)


if __name__ == "__main__":
    main()
