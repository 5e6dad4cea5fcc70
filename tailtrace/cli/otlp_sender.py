"""Sends OTLP bodies over HTTP, waits when told to, and keeps count."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tailtrace.errors import ConfigError, TailtraceError

if TYPE_CHECKING:
    import httpx

Signal = Literal["traces", "metrics", "logs"]

_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one body. `reason` is the server's word on what it rejected."""

    accepted: int
    rejected: int
    reason: str = ""


class OtlpSender:
    """One connection pool to an OTLP/HTTP door; may be used from several threads."""

    def __init__(self, endpoint: str, token: str = "", *, connections: int = 4) -> None:
        import httpx

        self.endpoint = endpoint.rstrip("/")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        try:
            self._http = httpx.Client(
                base_url=self.endpoint, headers=headers, timeout=60, limits=limits, trust_env=False
            )
        except (ValueError, httpx.InvalidURL) as error:
            raise ConfigError(f"--endpoint {endpoint}: not an address ({error})") from None

    def send(self, signal: Signal, data: bytes, items: int, content_type: str = "application/x-protobuf") -> Receipt:
        """Send one body of `items` spans, metrics or records. Raises when the server is gone or busy for too long."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            response = self._post(f"/v1/{signal}", data, content_type)
            if response.status_code not in (429, 503):
                break
            pause = _retry_after_s(response)
            if time.monotonic() + pause > deadline:
                raise TailtraceError(f"{self.endpoint} is too busy: {_reason(response)}")
            time.sleep(pause)
        if response.status_code == 401:
            raise ConfigError(f"{self.endpoint} asks for a token: give --token or set TAILTRACE_TOKEN")
        if response.status_code in (404, 405):
            raise ConfigError(
                f"{self.endpoint}/v1/{signal} does not exist there: is --endpoint the OTLP/HTTP door (4318)?"
            )
        if not response.is_success:
            return Receipt(0, items, f"{response.status_code}: {_reason(response)}")
        rejected, reason = _partial_success(signal, response)
        return Receipt(items - rejected, rejected, reason)

    def _post(self, path: str, data: bytes, content_type: str) -> httpx.Response:
        import httpx

        try:
            return self._http.post(path, content=data, headers={"content-type": content_type})
        except httpx.UnsupportedProtocol:
            raise ConfigError(f"--endpoint {self.endpoint}: expected http://HOST:PORT") from None
        except httpx.ConnectError:
            raise TailtraceError(
                f"no OTLP receiver answers at {self.endpoint}: start one with `tailtrace up`, "
                "or name yours with --endpoint"
            ) from None
        except httpx.HTTPError as error:
            raise TailtraceError(f"{self.endpoint}: the connection broke ({error!r})") from None


def _retry_after_s(response: httpx.Response) -> float:
    try:
        return min(30.0, max(0.1, float(response.headers.get("retry-after", "1"))))
    except ValueError:
        return 1.0


def _is_json(response: httpx.Response) -> bool:
    return bool(response.headers.get("content-type", "").startswith("application/json"))


def _reason(response: httpx.Response) -> str:
    """The message of a google.rpc.Status in either encoding: field 2, a string."""
    if _is_json(response):
        try:
            return str(response.json().get("message", ""))
        except (ValueError, AttributeError):
            return response.text[:200]
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.trace.v1.trace_pb2 import Status  # its field 2 is a string named message as well

    try:
        return str(Status.FromString(response.content).message)
    except DecodeError:
        return response.text[:200]


def _partial_success(signal: Signal, response: httpx.Response) -> tuple[int, str]:
    if _is_json(response):
        partial = response.json().get("partialSuccess") or {}
        counts = [int(value) for key, value in partial.items() if key.startswith("rejected")]
        return sum(counts), str(partial.get("errorMessage", ""))
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    if signal == "traces":
        traces = ExportTraceServiceResponse.FromString(response.content).partial_success
        return traces.rejected_spans, traces.error_message
    if signal == "metrics":
        metrics = ExportMetricsServiceResponse.FromString(response.content).partial_success
        return metrics.rejected_data_points, metrics.error_message
    logs = ExportLogsServiceResponse.FromString(response.content).partial_success
    return logs.rejected_log_records, logs.error_message
