"""Gateways and routers in front of engines: LiteLLM (both generations), Ray Serve, llm-d. Engines' spans nest below.

| product | spans | stages |
|---|---|---|
| LiteLLM V2 | `auth ...`, `execute_guardrail ...`, `cache.*`, `route ...`, `chat ...` (CLIENT) | by the table |
| legacy | `Received Proxy Server Request`, `litellm_request`, `raw_gen_ai_request`, `guardrail` | by the table |
| Ray Serve | `proxy_http_request ...`, `route_to_replica ...`, `replica_handle_request ...` | route |
| llm-d | `gateway.request`, `llm_d.epp.*`, `llm_d.pd_proxy.*` | route; prefill and decode as the proxy sees them |

LiteLLM's `chat` is a client span: its own time is the network to the engine, or external where no engine reports.
Redis and Postgres spans of the legacy generation serve auth and limits alike, so they name no stage.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tailtrace.analytics.engines.engine import Engine, Reading, RequestSpans
from tailtrace.analytics.engines.units import MILLISECOND, to_ns

LITELLM: Final = Engine(
    name="litellm",
    scope="litellm",
    span_stages={
        "cache.set": "finalize",
        "guardrail": "guardrail",
        "raw_gen_ai_request": "dispatch",
    },
    prefix_stages=(
        ("auth ", "auth"),
        ("execute_guardrail", "guardrail"),
        ("cache.get", "cache_lookup"),
        ("cache.set", "finalize"),
        ("route ", "route"),
    ),
    is_request=lambda name: name == "litellm_request" or name.startswith("chat "),
)

RAY_SERVE: Final = Engine(
    name="ray-serve",
    scope="ray",
    span_stages={},
    prefix_stages=(("route_to_replica", "route"),),
)


def _read_proxy(spans: RequestSpans) -> Reading:
    """The proxy's own time to the first token, in milliseconds."""
    ttft, known = to_ns(spans.number("llm_d.pd_proxy.true_ttft_ms"), MILLISECOND)
    duration = spans.ends - spans.starts
    unknown = np.full(len(ttft), -1, np.int64)
    return Reading((), np.where(known & (ttft > 0), np.minimum(ttft, duration), unknown), unknown)


LLM_D: Final = Engine(
    name="llm-d",
    scope="llm-d-inference-scheduler",
    span_stages={
        "gateway.request_orchestration": "route",
        "llm_d.pd_proxy.prefill": "prefill",
        "llm_d.pd_proxy.decode": "decode",
        "llm_d.pd_proxy.chunked_decode": "decode",
    },
    prefix_stages=(("llm_d.epp.", "route"),),
    is_request=lambda name: name == "llm_d.pd_proxy.request",
    read=_read_proxy,
)
