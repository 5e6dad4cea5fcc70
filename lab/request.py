"""One request of the lab: what was drawn for it before the run, and the marks it leaves on its way."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Request:
    """Times are nanoseconds from the start of the run; a mark of -1 was never reached."""

    # Drawn before the run.
    number: int
    service: str
    arrival_ns: int
    input_tokens: int
    output_tokens: int
    prefix_tokens: int
    prefix_group: int
    streaming: bool
    tenant: int
    patience_ns: int  # leaves after so long; -1 = stays
    refused: int  # HTTP status that the gateway answers with, 0 = served
    spread: float  # the request's own factor on every small duration around it
    net_in_ns: int
    auth_ns: int
    rate_limit_ns: int
    external_ns: int
    route_ns: int
    dispatch_ns: int
    network_ns: int
    client_rtt_ns: int
    token_interval_ns: int  # the client takes one token in this long; 0 = at once

    # Left by the run.
    routed_ns: int = -1
    replica: int = -1
    dispatched_ns: int = -1
    engine_start_ns: int = -1
    parsed_ns: int = -1
    template_start_ns: int = -1
    templated_ns: int = -1
    tokenized_ns: int = -1
    kv_start_ns: int = -1  # handed to the engine; what follows before it is submitted is KV blocks on their way
    kv_load_ns: int = 0  # fetched from the host's memory
    kv_transfer_ns: int = 0  # taken over from another worker
    submitted_ns: int = -1
    scheduled_ns: int = -1
    batched_ns: int = -1
    first_token_ns: int = -1
    last_token_ns: int = -1
    cached_tokens: int = 0
    produced: int = 0
    preemptions: list[tuple[int, int]] = field(default_factory=list)
    gaps: dict[int, int] = field(default_factory=dict)  # token gap in nanoseconds -> how many
    stalls: list[tuple[int, int]] = field(default_factory=list)  # (start, length) of long gaps
    outcome: str = ""
    ended_ns: int = -1
