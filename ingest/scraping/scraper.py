"""Reads every target on its interval, each in a thread of its own, so that a slow page delays no other.

A target that does not answer leaves a gap and one `tailtrace.absent` point that says why, again every hour while it
lasts; nothing is repeated and nothing is 0.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tailtrace.errors import TailtraceError
from tailtrace.ingest.pipeline import Pipeline
from tailtrace.ingest.scraping.exposition import SCOPE, read_exposition
from tailtrace.ingest.scraping.target import Target

log = logging.getLogger("tailtrace")

LARGEST_PAGE_BYTES: Final = 16 << 20
LONGEST_READ_S: Final = 10.0
REPEAT_ABSENT_S: Final = 3600.0
_ACCEPT: Final = "text/plain;version=0.0.4;q=0.9, application/openmetrics-text;version=1.0.0;q=0.5"


class Unreadable(Exception):
    """Why a page could not be read; its text has no part of the address."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A page that moved is a setting to correct, not a way to somewhere else."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)


def read_page(url: str, within_s: float) -> tuple[str, str]:
    """Text and content type of a page. Raises Unreadable."""
    deadline = time.monotonic() + within_s
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT, "User-Agent": "tailtrace"})
    try:
        with _OPENER.open(request, timeout=within_s) as answer:
            pieces, size = [], 0
            while piece := answer.read1(1 << 16):
                pieces.append(piece)
                size += len(piece)
                if size > LARGEST_PAGE_BYTES:
                    raise Unreadable(f"the page is larger than {LARGEST_PAGE_BYTES >> 20} MiB")
                if time.monotonic() > deadline:
                    raise Unreadable(f"the page took longer than {within_s:g} s")
            return b"".join(pieces).decode("utf-8", "replace"), answer.headers.get("Content-Type", "")
    except urllib.error.HTTPError as error:
        raise Unreadable(f"HTTP status {error.code}") from None
    except urllib.error.URLError as error:
        raise Unreadable(str(getattr(error.reason, "strerror", None) or error.reason)) from None
    except (OSError, ValueError) as error:
        raise Unreadable(str(error) or type(error).__name__) from None


class Scraper:
    """The threads of all targets, between start and stop."""

    def __init__(self, targets: Sequence[Target], pipeline: Pipeline, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock` gives Unix nanoseconds."""
        self._pipeline = pipeline
        self._clock = clock
        self._stop = threading.Event()
        self._absent: dict[Target, tuple[str, int]] = {}
        self._threads = [
            threading.Thread(target=self._run, args=(target,), name=f"tailtrace-scrape-{target.name}", daemon=True)
            for target in targets
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """No further page is read; one that is being read is not waited for longer than the timeout in all."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, target: Target) -> None:
        next_s = time.monotonic()
        while not self._stop.wait(max(0.0, next_s - time.monotonic())):
            try:
                self.scrape(target)
            except TailtraceError as error:
                log.warning("scraping %s: %s", target.name, error)
            except Exception:
                log.exception("scraping %s", target.name)
            # Missed readings are not caught up.
            next_s = max(next_s + target.interval_s, time.monotonic())

    def scrape(self, target: Target) -> None:
        """One reading, handed over to the pipeline."""
        resource = {"service.name": target.name, "service.instance.id": target.instance}
        began = self._clock()
        try:
            text, content_type = read_page(target.url, min(LONGEST_READ_S, target.interval_s))
            request, points = read_exposition(text, content_type, resource, began)
            if not points:
                raise Unreadable("the page holds no metrics")
        except (Unreadable, ValueError) as error:
            reason = str(error) if isinstance(error, Unreadable) else f"not a Prometheus page: {error}"
            self._say_absent(target, resource, reason[:200], began)
            return
        if self._absent.pop(target, None):
            log.info("scraping %s: it answers again", target.name)
        self._pipeline.submit("metrics", request.SerializeToString(), points)

    def _say_absent(self, target: Target, resource: dict[str, str], reason: str, now_unix_ns: int) -> None:
        known, since = self._absent.get(target, ("", 0))
        if known == reason and now_unix_ns - since < REPEAT_ABSENT_S * 1e9:
            return
        self._absent[target] = (reason, now_unix_ns)
        log.warning("scraping %s (%s): %s", target.name, target.instance, reason)
        request = ExportMetricsServiceRequest()
        of_process = request.resource_metrics.add()
        for key, value in resource.items():
            of_process.resource.attributes.add(key=key).value.string_value = value
        scope = of_process.scope_metrics.add()
        scope.scope.name = SCOPE
        point = scope.metrics.add(name="tailtrace.absent", unit="1").gauge.data_points.add(
            time_unix_nano=now_unix_ns, as_int=1
        )
        point.attributes.add(key="tailtrace.metric").value.string_value = "scrape"
        point.attributes.add(key="tailtrace.reason").value.string_value = reason
        self._pipeline.submit("metrics", request.SerializeToString(), 1)
