"""The doors: OTLP over HTTP and gRPC, checked, counted, and handed to the pipeline."""

from tailtrace.ingest.receiver.counters import Counters
from tailtrace.ingest.receiver.grpc import create_grpc_server
from tailtrace.ingest.receiver.http import create_app

__all__ = ["Counters", "create_app", "create_grpc_server"]
