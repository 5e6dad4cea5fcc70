"""Sends one OTLP body: HTTP over a kept connection, or gRPC where grpcio is installed. One attempt a call."""

from __future__ import annotations

import logging
import threading
import zlib
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from tailtrace.errors import ConfigError
from tailtrace.instrumentation.settings import Settings
from tailtrace.version import VERSION

log = logging.getLogger("tailtrace")

RETRYABLE = frozenset({429, 502, 503, 504})
_GRPC_RETRYABLE = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one attempt. `rejected` counts spans or points the receiver refused inside an accepted body."""

    ok: bool
    retry: bool = False
    retry_after_s: float | None = None
    rejected: int = 0
    reason: str = ""


class Transport(Protocol):
    """One attempt at a time, from the background thread; `abort` may be called from any other."""

    address: str

    def send(self, body: bytes) -> Answer: ...

    def abort(self) -> None: ...


Signal = Literal["traces", "metrics"]
_SERVICES: dict[Signal, str] = {"traces": "trace.v1.TraceService", "metrics": "metrics.v1.MetricsService"}


def address_of(settings: Settings, signal: Signal) -> str:
    """The full HTTP address for a signal. A missing scheme is taken for http, a base gets /v1/traces or /v1/metrics."""
    given = getattr(settings, f"{signal}_endpoint")
    text = given or settings.endpoint
    if "://" not in text:
        log.warning("tailtrace: endpoint %r has no scheme; using http://%s", text, text)
        text = f"http://{text}"
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"endpoint: expected http://host:port or https://host:port, got {text!r}")
    _ = parts.port  # raises ValueError where it is no number
    if given or parts.path.endswith(f"/v1/{signal}"):
        return text
    return text.rstrip("/") + f"/v1/{signal}"


def traces_address(settings: Settings) -> str:
    """The full HTTP address for spans."""
    return address_of(settings, "traces")


class HttpTransport:
    """OTLP/HTTP with protobuf bodies."""

    def __init__(self, settings: Settings, signal: Signal = "traces") -> None:
        self.address = address_of(settings, signal)
        self._parts = urlsplit(self.address)
        self._path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        self._timeout_s = settings.timeout_s
        self._gzip = settings.compression.lower() == "gzip"
        self._connection: Any = None
        self._headers = {
            "content-type": "application/x-protobuf",
            "user-agent": f"tailtrace-python/{VERSION}",
            **settings.headers,
        }
        if self._gzip:
            self._headers["content-encoding"] = "gzip"

    def send(self, body: bytes) -> Answer:
        if self._gzip:
            packer = zlib.compressobj(1, zlib.DEFLATED, 31)
            body = packer.compress(body) + packer.flush()
        reused = self._connection is not None
        try:
            return self._attempt(body)
        except Exception as error:
            self.close()
            # A kept connection may have been closed by the receiver between two batches: that says nothing about it.
            if reused and isinstance(error, ConnectionError):
                try:
                    return self._attempt(body)
                except Exception as second:
                    self.close()
                    error = second
            return Answer(False, retry=True, reason=f"{type(error).__name__}: {error}")

    def _attempt(self, body: bytes) -> Answer:
        connection = self._connection or self._connect()
        connection.request("POST", self._path, body, self._headers)
        response = connection.getresponse()
        content = response.read(1 << 16)
        if response.will_close or not response.isclosed():
            self.close()
        status = response.status
        if 200 <= status < 300:
            return Answer(True, rejected=_rejected_spans(content))
        text = content[:200].decode("utf-8", "replace").strip()
        return Answer(
            False,
            retry=status in RETRYABLE,
            retry_after_s=_seconds(response.headers.get("retry-after")),
            reason=f"HTTP {status} {text}".strip(),
        )

    def _connect(self) -> Any:
        # Imported here, in the background thread: it takes longer than everything else that this package imports.
        from http.client import HTTPConnection, HTTPSConnection

        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except OSError:
                pass

    def abort(self) -> None:
        """Wake a thread that waits for the receiver."""
        import socket

        sock = getattr(self._connection, "sock", None)
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class GrpcTransport:
    """OTLP/gRPC. Raises ImportError where grpcio is not installed."""

    def __init__(self, settings: Settings, signal: Signal = "traces") -> None:
        import grpc

        text = getattr(settings, f"{signal}_endpoint") or settings.endpoint
        parts = urlsplit(text if "://" in text else f"http://{text}")
        if not parts.hostname:
            raise ConfigError(f"endpoint: expected http://host:port, got {text!r}")
        self.address = f"{parts.hostname}:{parts.port or 4317}"
        self._timeout_s = settings.timeout_s
        self._metadata = [(name.lower(), value) for name, value in settings.headers.items()]
        self._compression = grpc.Compression.Gzip if settings.compression == "gzip" else grpc.Compression.NoCompression
        if parts.scheme == "https":
            self._channel = grpc.secure_channel(self.address, grpc.ssl_channel_credentials())
        else:
            self._channel = grpc.insecure_channel(self.address)
        self._export = self._channel.unary_unary(f"/opentelemetry.proto.collector.{_SERVICES[signal]}/Export")
        self._error = grpc.RpcError

    def send(self, body: bytes) -> Answer:
        try:
            content = self._export(
                body, timeout=self._timeout_s, metadata=self._metadata, compression=self._compression
            )
        except self._error as error:
            code = error.code().name
            reason = f"gRPC {code}: {error.details()}"
            if code == "UNAVAILABLE" and "http" in str(error.details()).lower():
                reason += " (is this an OTLP/HTTP port? then set protocol=http/protobuf)"
            return Answer(False, retry=code in _GRPC_RETRYABLE, reason=reason)
        return Answer(True, rejected=_rejected_spans(content))

    def abort(self) -> None:
        self._channel.close()


def open_transport(settings: Settings, signal: Signal = "traces") -> Transport:
    """The transport that `settings.protocol` names; http/protobuf, with a warning, where that one cannot be had.

    Raises ConfigError for an endpoint that cannot work.
    """
    if settings.protocol == "grpc":
        try:
            return GrpcTransport(settings, signal)
        except ImportError:
            log.warning(
                "tailtrace: protocol grpc needs grpcio (pip install grpcio); sending http/protobuf to %s instead",
                settings.traces_endpoint or settings.endpoint,
            )
    elif settings.protocol not in {"http/protobuf", "http"}:
        log.warning("tailtrace: protocol %r is not known; using http/protobuf", settings.protocol)
    try:
        return HttpTransport(settings, signal)
    except ValueError as error:
        raise ConfigError(f"endpoint: expected http://host:port, got {settings.endpoint!r} ({error})") from error


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; its date form is not used by receivers and is ignored."""
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None


def _rejected_spans(content: bytes) -> int:
    """`partial_success.rejected_spans` of an ExportTraceServiceResponse, 0 where it says none."""
    # field 1 (partial_success) length-delimited, in it field 1 (rejected_spans) a varint
    if len(content) < 4 or content[0] != 0x0A:
        return 0
    at = 1
    while at < len(content) and content[at] & 0x80:
        at += 1
    at += 1
    if at >= len(content) or content[at] != 0x08:
        return 0
    value = shift = 0
    for byte in content[at + 1 : at + 11]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value
    return 0


class Every:
    """Lets a log line through at most once in `seconds`, and counts those held back."""

    def __init__(self, seconds: float, now: Any) -> None:
        self._seconds = seconds
        self._now = now
        self._next: float | None = None
        self._lock = threading.RLock()

    def __call__(self) -> bool:
        with self._lock:
            now = self._now()
            if self._next is not None and now < self._next:
                return False
            self._next = now + self._seconds
            return True
