"""The rows of `requests` from an attributed batch, column by column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace import stages
from tailtrace.analytics.attribution import attribute as kernel
from tailtrace.analytics.attribution.attribute import Attribution
from tailtrace.analytics.attribution.layer import DERIVED_ORDER
from tailtrace.analytics.attribution.tree import ABSENT, CONSUMER, CYCLE, MISSING, Forest
from tailtrace.analytics.engines import ENGINES
from tailtrace.analytics.engines.engine import OUTCOMES
from tailtrace.analytics.engines.notes import LINK
from tailtrace.analytics.judge import columns, stratum
from tailtrace.analytics.judge.batch import Batch
from tailtrace.analytics.judge.calls import CACHED_KEYS, INPUT_KEYS, MAX_TOKENS, OUTPUT_KEYS, Calls
from tailtrace.analytics.judge.processes import NUMBERS, TEXTS, Processes

_NAMES: Final = pa.array([*stages.NAMES, stages.UNEXPLAINED])
_STARTUP: Final = np.array([stages.INDEX[stage.name] for stage in stages.STARTUP_STAGES])
_REQUEST: Final = np.array([stages.INDEX[stage.name] for stage in stages.REQUEST_STAGES])
_CALL_MODELS: Final = ("gen_ai.request.model", "gen_ai.response.model", "model")
_STATUS_OUTCOMES: Final = {408: "timeout", 429: "rejected", 499: "cancelled", 503: "rejected", 504: "timeout"}

# Arrivals per minute by service, model and start; NaN where not known.
Arrivals = Callable[[pa.Array, pa.Array, Any], Any]


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """By entry, offsets in ns from its start, -1 where unknown."""

    ttft: Any
    last_token: Any
    from_engine: Any
    clipped: Any


def first_tokens(batch: Batch, calls: Calls, entries: Any) -> FirstTokens:
    """The client's view where the entry span carries it, else the engine's where the entry span is an engine's."""
    attributes = batch.attributes.of(batch.row[entries])
    duration = batch.ends[entries] - batch.starts[entries]
    ttft = attributes.count("tailtrace.ttft_ns")
    last = attributes.count("tailtrace.last_token_ns")
    call = calls.of_span[entries]
    from_engine = np.zeros(len(entries), np.bool_)
    if len(calls.at):
        from_engine = (ttft < 0) & (call >= 0) & (calls.ttft_of_all[call] >= 0)
        last = np.where((last < 0) & from_engine, calls.last_token[call], last)
        ttft = np.where(from_engine, calls.ttft_of_all[call], ttft)
    clipped = (ttft > duration) | (last > duration)
    known = ~batch.faults[entries]
    return FirstTokens(
        ttft=np.where(known, np.minimum(ttft, duration), -1),
        last_token=np.where(known, np.minimum(last, duration), -1),
        from_engine=from_engine & known,
        clipped=clipped & known,
    )


def request_rows(
    batch: Batch,
    forest: Forest,
    calls: Calls,
    entries: Any,
    roots: Any,
    tokens: FirstTokens,
    found: Attribution,
    processes: Processes,
    arrivals: Arrivals | None,
) -> pa.Table:
    """One row per entry, with every column of `requests` but Shard, Sign, Revision and Round."""
    m = len(entries)
    attributes = batch.attributes.of(batch.row[entries])
    text, count = attributes.text, attributes.count
    starts, ends = batch.starts[entries], batch.ends[entries]
    own_call = calls.of_span[entries]
    call = np.where(own_call >= 0, own_call, np.where(found.calls == 1, calls.of_span[found.call], -1))
    called = call >= 0

    def from_call(own: Any, theirs: Any) -> Any:
        return np.where((own < 0) & called, theirs[call], own) if len(calls.at) else own

    output = from_call(count(*OUTPUT_KEYS, limit=MAX_TOKENS), calls.output_of_all)
    own_output = np.where(calls.of_span[entries] >= 0, from_call(np.full(m, -1), calls.output_tokens), output)
    input_tokens = from_call(count(*INPUT_KEYS, limit=MAX_TOKENS), calls.input_tokens)
    if len(calls.at):
        is_call = calls.of_span[entries] >= 0
        output = np.where(is_call, calls.output_of_all[calls.of_span[entries]], output)
    cached = from_call(count(*CACHED_KEYS, limit=MAX_TOKENS), calls.cached_tokens)
    samples = np.maximum(count("tailtrace.n", limit=65535), 1)
    if len(calls.at):
        samples = np.maximum(samples, np.where(called, np.minimum(calls.samples[call], 65535), 1))
    first = tokens.ttft
    if len(calls.at):
        # Of several samples, the token rate is that of the sample whose times the row has.
        first = np.where(tokens.from_engine, calls.ttft[calls.of_span[entries]], first)
    paced = (first >= 0) & (tokens.last_token >= first) & (own_output > 1)
    tpot = np.where(paced, (tokens.last_token - first) // np.maximum(own_output - 1, 1), -1)

    request_marked = attributes.equals("tailtrace.request", "true")
    startup = found.total[:, _STARTUP].sum(axis=1) > 0
    # An engine's own trace that names the requests it worked for (a batch, work after the answer) is no request.
    caused = (batch.parents[entries] == 0) & (batch.engines[entries] >= 0) & attributes.has(LINK)
    job = ((batch.kinds[entries] == CONSUMER) | caused) & ~request_marked
    kind = columns.coded(np.where(startup, 1, np.where(job, 2, 0)), pa.array(["request", "startup", "job"]))
    service = columns.coded(batch.services[entries], batch.service_texts)
    stated = columns.first_text(text_of_calls(batch, calls, *_CALL_MODELS), calls.models)
    engine_model = _of_calls(calls, call, stated, m)
    model = columns.first_text(
        text("gen_ai.request.model", "gen_ai.response.model"), engine_model, processes.text(TEXTS["Model"])
    ).dictionary_encode()
    streaming = columns.first_text(text("tailtrace.streaming"))
    streaming = pc.if_else(pc.is_in(streaming, pa.array(["true", "false"])), streaming, "").dictionary_encode()
    texts = {column: processes.text(key) for column, key in TEXTS.items()}
    engine = columns.first_text(texts["Engine"], _engine_names(batch, calls, call)).dictionary_encode()
    numbers = {column: processes.number(key, limit) for column, (key, limit) in NUMBERS.items()}
    per_minute = arrivals(service, model, starts) if arrivals else np.full(m, np.nan)
    share = np.where((cached >= 0) & (input_tokens > 0), cached / np.maximum(input_tokens, 1), 0.0)
    strata = stratum.mix(
        [
            stratum.text_hash(model),
            stratum.text_hash(texts["Precision"]),
            stratum.text_hash(engine),
            numbers["Tp"],
            stratum.text_hash(streaming),
            stratum.bucket(input_tokens, stratum.INPUT_TOKENS, input_tokens >= 0),
            stratum.bucket(output, stratum.OUTPUT_TOKENS, output >= 0),
            stratum.bucket(share, stratum.CACHED_SHARE, cached >= 0),
            stratum.load_bucket(per_minute),
        ]
    )
    table: dict[str, Any] = {
        "Start": columns.timestamps(starts),
        "End": columns.timestamps(ends),
        "TraceId": columns.hex_text(batch.traces[np.searchsorted(batch.offsets, entries, side="right") - 1]),
        "SpanId": columns.id_hex(batch.ids[entries]),
        "ParentSpanId": columns.id_hex(batch.parents[entries]),
        "Service": service,
        "Name": columns.coded(batch.names[entries], batch.name_texts),
        "Route": text("tailtrace.route", "http.route").dictionary_encode(),
        "Kind": kind,
        "IsRoot": pa.array(roots),
        "DurationNs": pa.array((ends - starts).astype(np.uint64)),
        "TtftNs": columns.nullable(tokens.ttft, pa.uint64()),
        "TtftAnswerNs": columns.nullable(count("tailtrace.ttft_answer_ns"), pa.uint64()),
        "LastTokenNs": columns.nullable(tokens.last_token, pa.uint64()),
        "TpotNs": columns.nullable(tpot, pa.uint64()),
        "Outcome": _outcomes(attributes, batch.errors[entries], calls, own_call),
        "ErrorType": text("error.type").dictionary_encode(),
        "Streaming": streaming,
        "InputTokens": columns.nullable(input_tokens, pa.uint32()),
        "OutputTokens": columns.nullable(output, pa.uint32()),
        "CachedTokens": columns.nullable(cached, pa.uint32()),
        "N": pa.array(samples.astype(np.uint16)),
        "Attempts": pa.array(np.maximum(count("tailtrace.attempts", limit=65535), 1).astype(np.uint16)),
        "Model": model,
        "Version": processes.of_entry("service.version"),
        "Engine": engine,
        **{name: texts[name] for name in ("EngineVersion", "EngineId", "Precision", "Quantization")},
        "Tp": pa.array(numbers["Tp"].astype(np.uint16)),
        "Pp": pa.array(numbers["Pp"].astype(np.uint16)),
        "MaxBatch": pa.array(numbers["MaxBatch"].astype(np.uint32)),
        **{name: texts[name] for name in ("GpuModel", "GpuUuids", "Replica", "HostId")},
        "Tenant": text("tailtrace.tenant").dictionary_encode(),
        "ClientRegion": text("tailtrace.client_region").dictionary_encode(),
        "RequestId": text("tailtrace.request_id"),
        "EngineRequestId": columns.first_text(
            text("tailtrace.engine_request_id"), _of_calls(calls, call, calls.request_id, m)
        ),
        "RequestBytes": columns.nullable(count("http.request.body.size"), pa.uint64()),
        "ResponseBytes": columns.nullable(count("http.response.body.size"), pa.uint64()),
        "ClientRttNs": columns.nullable(count("tailtrace.client_rtt_ns"), pa.uint64()),
        "SampleWeight": pa.array(np.maximum(count("tailtrace.sample_weight", limit=1 << 20), 1).astype(np.uint32)),
        "SpanCount": pa.array(np.minimum(found.spans, MAX_TOKENS).astype(np.uint32)),
        "Gaps": text("tailtrace.gaps"),
        "Stalls": text("tailtrace.stalls"),
        "Simulated": pa.array(processes.is_true("tailtrace.simulated")),
        "Flags": _flags(batch, forest, calls, entries, call, tokens, found, processes),
        "DerivedStages": _derived_stages(found),
        "Stratum": pa.array(strata),
        "OfferedLoad": pa.array(per_minute.astype(np.float32), mask=~np.isfinite(per_minute)),
        "Path": _paths(batch, forest, found),
    }
    total, before = _by_stage(found.total), _by_stage(found.first)
    for k, name in enumerate(stages.NAMES):
        table[f"{stages.BY_NAME[name].column}Ns"] = total[k]
    table["UnexplainedNs"] = total[kernel.UNEXPLAINED]
    for k in _REQUEST:
        table[f"{stages.STAGES[k].column}TtftNs"] = before[k]
    table["UnexplainedTtftNs"] = before[kernel.UNEXPLAINED]
    return pa.table(table)


def _by_stage(ns: Any) -> list[pa.Array]:
    """The columns of a matrix by request and stage; those of 0 are one and the same."""
    used = ns.any(axis=0)
    zeros = pa.array(np.zeros(len(ns), np.uint64))
    return [pa.array(ns[:, k].astype(np.uint64)) if used[k] else zeros for k in range(ns.shape[1])]


def _or_none(texts: pa.Array) -> pa.Array:
    return pa.concat_arrays([texts, pa.array([""])])


def text_of_calls(batch: Batch, calls: Calls, *keys: str) -> pa.Array:
    return batch.attributes.of(batch.row[calls.at]).text(*keys)


def _of_calls(calls: Calls, call: Any, texts: pa.Array, count: int) -> pa.Array:
    """Texts by call, taken to the rows that have a call."""
    if not len(calls.at):
        return columns.repeated("", count)
    return pc.fill_null(texts.take(pa.array(call, mask=call < 0)), "")


def _engine_names(batch: Batch, calls: Calls, call: Any) -> pa.Array:
    names = pa.array([*(engine.name for engine in ENGINES), ""])
    if not len(calls.at):
        return columns.repeated("", len(call))
    return names.take(pa.array(np.where(call >= 0, batch.engines[calls.at[call]], len(ENGINES))))


def _outcomes(attributes: Any, errors: Any, calls: Calls, own_call: Any) -> pa.Array:
    """The outcome that the span states, else its engine's word, else what its HTTP status and span status mean."""
    stated = attributes.text("tailtrace.outcome")
    code = pc.index_in(stated, pa.array(OUTCOMES)).fill_null(-1).to_numpy(zero_copy_only=False)
    if len(calls.at):
        code = np.where((code < 0) & (own_call >= 0), calls.outcomes[own_call], code)
    status = attributes.count("http.response.status_code", "http.status_code", limit=999)
    implied = np.where(errors | (status >= 500), 1, 0)
    for number, outcome in _STATUS_OUTCOMES.items():
        implied = np.where(status == number, OUTCOMES.index(outcome), implied)
    return columns.coded(np.where(code >= 0, code, implied), pa.array(OUTCOMES))


def _flags(
    batch: Batch,
    forest: Forest,
    calls: Calls,
    entries: Any,
    call: Any,
    tokens: FirstTokens,
    found: Attribution,
    processes: Processes,
) -> pa.Array:
    orphan = forest.orphan[entries]
    bits = found.flags
    masks = [
        ("clock_fault", batch.faults[entries]),
        ("inner_clock_fault", (bits & kernel.INNER_CLOCK_FAULT) > 0),
        ("parent_missing", orphan == MISSING),
        ("cycle_cut", (orphan == CYCLE) | ((bits & kernel.CUT_CYCLE) > 0)),
        ("orphans", (bits & kernel.ORPHANS) > 0),
        ("skewed", (bits & kernel.SKEWED) > 0),
        ("overrun", (bits & kernel.OVERRUN) > 0),
        ("engine_ttft", tokens.from_engine),
        ("ttft_clipped", tokens.clipped),
        ("several_roots", (orphan == ABSENT) & ~forest.root[entries]),
        ("backfill", processes.is_true("tailtrace.backfill")),
    ]
    for name, mask in calls.flags.items():
        masks.append((name, (call >= 0) & mask[call] if len(mask) else np.zeros(len(entries), np.bool_)))
    return columns.lists_of([(name, mask) for name, mask in masks if mask.any()], len(entries))


def _derived_stages(found: Attribution) -> pa.Array:
    masks = [(name, (found.derived >> k) & 1 > 0) for k, name in enumerate(DERIVED_ORDER)]
    return columns.lists_of([(name, mask) for name, mask in masks if mask.any()], len(found.derived))


def _paths(batch: Batch, forest: Forest, found: Attribution) -> pa.Array:
    """(stage, service, name, edge, ns) by place on the path, in order of first appearance."""
    span, stage = found.path_span, found.path_stage.astype(np.int64)
    named = span >= 0
    service = columns.coded(
        np.where(named, batch.services[span], len(batch.service_texts)), _or_none(batch.service_texts)
    )
    name = columns.coded(np.where(named, batch.names[span], len(batch.name_texts)), _or_none(batch.name_texts))
    edge_codes, edges = _edges(batch, forest, span, np.flatnonzero(named & (stage == stages.INDEX["network"])))
    values = pa.StructArray.from_arrays(
        [
            columns.coded(stage, _NAMES),
            service,
            name,
            columns.coded(edge_codes, edges),
            pa.array(found.path_ns.astype(np.uint64)),
        ],
        names=["stage", "service", "name", "edge", "ns"],
    )
    return pa.ListArray.from_arrays(pa.array(found.first_path.astype(np.int32)), values)


def _edges(batch: Batch, forest: Forest, span: Any, calls: Any) -> tuple[Any, pa.Array]:
    """The edge caller->callee of each place as a code and its text: where a remote child answered one of `calls`."""
    codes = np.zeros(len(span), np.int32)
    calls = calls[forest.remote[span[calls]] >= 0]
    known = batch.service_texts.to_pylist()
    width = max(len(known), 1)
    pairs = batch.services[span[calls]].astype(np.int64) * width + forest.remote[span[calls]]
    distinct, place = np.unique(pairs, return_inverse=True)
    codes[calls] = 1 + place.reshape(-1)
    texts = [f"{known[pair // width]}->{known[pair % width]}" for pair in distinct.tolist()]
    return codes, pa.array(["", *texts], pa.string())
