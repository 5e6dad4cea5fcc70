"""The stage vocabulary: every place a request can spend time, in the order it usually passes them.

A stage has a kind (wait or work), the resource it waits for or works on, and one colour that it keeps on every surface.
Colours are a light and a dark variant, chosen so that neighbours in a stacked bar differ in lightness as well as in hue.
"""

# A line a stage, to be read as a table.
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["wait", "work"]
Resource = Literal["network", "cpu", "scheduler", "gpu", "memory", "link", "storage", "client"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. `column` is the stem of its columns in `requests` and the rollups (`QueueNs`, `QueueTtftNs`)."""

    name: str
    kind: Kind
    resource: Resource
    light: str
    dark: str
    meaning: str

    @property
    def column(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("_"))


REQUEST_STAGES: Final[tuple[Stage, ...]] = (
    Stage("net_in", "wait", "network", "#8C8C8C", "#A8A8A8", "first byte or headers received -> whole body received"),
    Stage("auth", "work", "cpu", "#B07AA1", "#C795B8", "key or token check, its look-ups included"),
    Stage("rate_limit", "wait", "scheduler", "#9C5F8C", "#B47FA5", "quota or limiter decision, waiting included"),
    Stage("admission", "wait", "scheduler", "#7D4F73", "#9C6E92", "accept or refuse because of load"),
    Stage("parse", "work", "cpu", "#A0785A", "#BD977A", "body -> validated request"),
    Stage("guardrail", "work", "cpu", "#C2A27C", "#D4B996", "content check before or after the model"),
    Stage("cache_lookup", "work", "storage", "#8A6D3B", "#AB8D59", "response or semantic cache"),
    Stage("route", "work", "cpu", "#6B8E4E", "#8BAF6C", "choice of model group, replica or worker"),
    Stage("dispatch", "wait", "network", "#4E7A3A", "#6E9C57", "hand-over to the chosen worker: connect, serialise, call"),
    Stage("template", "work", "cpu", "#E3B505", "#F0CB3C", "chat template"),
    Stage("tokenize", "work", "cpu", "#E69F00", "#F2B430", "text -> token ids, the wait for the tokenizer pool included"),
    Stage("mm_encode", "work", "gpu", "#C77E00", "#DD9A2B", "vision or audio encoder"),
    Stage("engine_submit", "wait", "cpu", "#A66A3F", "#C4885B", "tokenized request -> accepted by the engine's scheduler"),
    Stage("queue", "wait", "scheduler", "#D55E00", "#F07B26", "accepted by the scheduler -> first scheduled"),
    Stage("grammar", "work", "cpu", "#B5533C", "#D1735B", "structured-output compile"),
    Stage("kv_load", "wait", "memory", "#8E3B46", "#B05A66", "KV blocks fetched from a host or remote cache before compute"),
    Stage("kv_transfer", "wait", "link", "#A23B72", "#C25C92", "KV hand-over between prefill and decode workers"),
    Stage("batch_wait", "wait", "scheduler", "#F28E2B", "#F7A857", "scheduled or in the running set, waiting for the next step"),
    Stage("prefill", "work", "gpu", "#0072B2", "#3D9BD6", "first scheduled -> first token"),
    Stage("forward", "work", "gpu", "#2A9D8F", "#4FBFB2", "compute of a one-shot inference"),
    Stage("decode", "work", "gpu", "#56B4E9", "#7CC8F2", "first token -> last token"),
    Stage("preempted", "wait", "memory", "#CC3311", "#E8593A", "preempted or retracted -> scheduled again"),
    Stage("engine_return", "wait", "cpu", "#7F7FBF", "#9D9DD8", "output produced -> received by the API server"),
    Stage("detokenize", "work", "cpu", "#009E73", "#2FBF96", "token ids -> text"),
    Stage("postprocess", "work", "cpu", "#44AA99", "#66C4B5", "tool and reasoning parsing, logprobs, usage"),
    Stage("stream_out", "wait", "client", "#CC79A7", "#DE97BE", "bytes handed to the client's connection"),
    Stage("finalize", "work", "cpu", "#777711", "#9A9A3A", "logging, billing, cache store after the answer"),
    Stage("network", "wait", "network", "#999999", "#B8B8B8", "client span minus its remote child, both ways"),
    Stage("external", "wait", "network", "#6F5D8A", "#8F7DAA", "call to a database, store or other API with no spans of its own"),
    Stage("app", "work", "cpu", "#5F6B7A", "#8492A3", "self time of a span without a stage, other than the entry span"),
    Stage("custom", "work", "cpu", "#3B5B92", "#6282BC", "a stage the user named"),
)  # fmt: skip

STARTUP_STAGES: Final[tuple[Stage, ...]] = (
    Stage("engine_init", "work", "cpu", "#6D7FA8", "#8D9FC8", "engine and its processes set up"),
    Stage("weights_download", "wait", "network", "#B8860B", "#D3A534", "weights fetched from a hub or store"),
    Stage("model_load", "work", "storage", "#CD853F", "#DDA262", "weights read and placed on the device"),
    Stage("compile", "work", "cpu", "#8B4513", "#AF6B3A", "graph or kernel compilation"),
    Stage("graph_capture", "work", "gpu", "#4682B4", "#6BA2CF", "CUDA graphs captured"),
    Stage("kv_alloc", "work", "memory", "#708090", "#90A0B0", "KV cache sized and allocated"),
    Stage("warmup", "work", "gpu", "#BDB76B", "#D2CD8C", "first passes before serving"),
)

STAGES: Final[tuple[Stage, ...]] = REQUEST_STAGES + STARTUP_STAGES
NAMES: Final[tuple[str, ...]] = tuple(stage.name for stage in STAGES)
BY_NAME: Final[dict[str, Stage]] = {stage.name: stage for stage in STAGES}
INDEX: Final[dict[str, int]] = {name: index for index, name in enumerate(NAMES)}

UNEXPLAINED: Final = "unexplained"
UNEXPLAINED_LIGHT: Final = "#D9D9D9"
UNEXPLAINED_DARK: Final = "#4A4F57"

# At each instant below the entry span the first active one of these has it: streaming overlaps decoding, and the most
# upstream stage is the one that holds the request back.
GENERATION_ORDER: Final[tuple[str, ...]] = (
    "preempted", "kv_transfer", "kv_load", "queue", "grammar", "batch_wait", "prefill", "forward", "decode",
    "engine_return", "detokenize", "postprocess", "stream_out",
)  # fmt: skip
