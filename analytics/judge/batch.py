"""The spans of a batch of traces as arrays, from the inbox or from spans in hand: the judge's one form of input."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailtrace import stages
from tailtrace.analytics.attribution.tree import CLIENT, CONSUMER, PRODUCER, SERVER
from tailtrace.analytics.engines import ENGINES
from tailtrace.analytics.engines.notes import notes
from tailtrace.analytics.judge.attributes import Attributes
from tailtrace.analytics.judge.grouping import Grouping, group_rows
from tailtrace.analytics.trace import Span

KINDS: Final = {"Internal": 1, "Server": SERVER, "Client": CLIENT, "Producer": PRODUCER, "Consumer": CONSUMER}
_CUSTOM: Final = stages.INDEX["custom"]
_MAX_NS: Final = (1 << 63) - 1

Resources = Mapping[int, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Spans sorted by trace; arrays are by span unless said otherwise.

    offsets: where each trace starts, and the end. traces: 16 bytes of id by trace. names and services are codes into
    `name_texts` and `service_texts`; `stages` indexes of the vocabulary or -1; `engines` positions in ENGINES or -1;
    `calls` says which are requests of an engine. row: the position in `attributes` and in what was given.
    """

    offsets: Any
    traces: Any
    row: Any
    ids: Any
    parents: Any
    starts: Any
    ends: Any
    faults: Any
    kinds: Any
    services: Any
    service_texts: pa.Array
    names: Any
    name_texts: pa.Array
    errors: Any
    stages: Any
    engines: Any
    calls: Any
    asynchronous: Any
    resources: Any
    has_attributes: Any
    attributes: Attributes

    def __len__(self) -> int:
        return len(self.ids)


def _codes(column: Any) -> tuple[Any, pa.Array]:
    """Codes and their texts of a column of strings, dictionary-encoded or not."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return array.indices.to_numpy(zero_copy_only=False).astype(np.int32), array.dictionary.cast(pa.string())


def _by_text(codes: Any, texts: pa.Array, meaning: Any, dtype: Any) -> Any:
    """What `meaning` says of each text, by span."""
    table = np.array([meaning(text) for text in texts.to_pylist()] or [0], dtype)
    return table[codes]


def _stages(stage: Any, names: tuple[Any, pa.Array], scopes: tuple[Any, pa.Array]) -> tuple[Any, Any, Any]:
    """Stage, engine and "is an engine's request" of each span: its own mark, else its engine's table."""
    codes, texts = _codes(stage)
    found = _by_text(codes, texts, lambda t: stages.INDEX.get(t, _CUSTOM) if t else -1, np.int8)
    scope_codes, scope_texts = scopes
    name_codes, name_texts = names
    engine = _by_text(
        scope_codes, scope_texts, lambda t: next((k for k, e in enumerate(ENGINES) if e.owns(t)), -1), np.int8
    )
    engine = _shared(engine, names, scopes)
    calls = np.zeros(len(found), np.bool_)
    for k in np.unique(engine[engine >= 0]):
        owner = ENGINES[k]
        mine = engine == k
        known = _by_text(name_codes, name_texts, lambda t: stages.INDEX.get(owner.stage_of(t), -1), np.int8)  # noqa: B023
        found = np.where(mine & (found < 0), known, found)
        calls |= mine & _by_text(name_codes, name_texts, lambda t: owner.is_request(t), np.bool_)  # noqa: B023
    return found, engine, calls


def _shared(engine: Any, names: tuple[Any, pa.Array], scopes: tuple[Any, pa.Array]) -> Any:
    """Engines without a scope of their own, by scope and name; nothing is done where no scope comes into question."""
    scope_codes, scope_texts = scopes
    name_codes, name_texts = names
    free = [not (t == "tailtrace" or any(e.owns(t) for e in ENGINES)) for t in scope_texts.to_pylist()]
    if not any(free):
        return engine
    known_names = name_texts.to_pylist()
    for k, owner in enumerate(ENGINES):
        scope_may = np.array(
            [ok and owner.may_share(t) for ok, t in zip(free, scope_texts.to_pylist(), strict=True)], np.bool_
        )
        name_may = np.array([owner.shared_names(t) for t in known_names] or [False], np.bool_)
        if scope_may.any() and name_may.any():
            engine = np.where((engine < 0) & scope_may[scope_codes] & name_may[name_codes], np.int8(k), engine)
    return engine


def _frames(names: tuple[Any, pa.Array], engine: Any) -> Any:
    """Which spans only group what one thread did."""
    codes, texts = names
    found = np.zeros(len(engine), np.bool_)
    for k in np.unique(engine[engine >= 0]):
        is_frame = ENGINES[k].is_frame
        if is_frame is not None:
            found |= (engine == k) & _by_text(codes, texts, is_frame, np.bool_)
    return found


def _unframed(ids: Any, parents: Any, frames: Any, trace: Any) -> Any:
    """Parents, but of spans below a frame the frame's own."""
    at = np.flatnonzero(frames)
    at = at[np.argsort(ids[at], kind="stable")]
    place = np.minimum(np.searchsorted(ids[at], parents), len(at) - 1)
    frame = at[place]
    inside = (ids[frame] == parents) & (trace[frame] == trace)
    return np.where(inside, parents[frame], parents)


def from_inbox(table: pa.Table, grouping: Grouping | None = None) -> Batch:
    """A batch of rows of `span_inbox`; any order, whole traces. `grouping` is that of these rows, where it is known; of
    rows of traces that it leaves out nothing is read."""
    grouping = group_rows(table["TraceId"].combine_chunks()) if grouping is None else grouping
    order, offsets = grouping.order, grouping.offsets

    def column(name: str) -> Any:
        return table[name].combine_chunks().to_numpy(zero_copy_only=False)[order]

    starts = column("StartNs")
    duration = column("DurationNs").astype(np.uint64)
    faults = column("ClockFault").astype(np.bool_)
    room = (_MAX_NS - np.maximum(starts, 0)).astype(np.uint64)
    ends = starts + np.where(faults, np.uint64(0), np.minimum(duration, room)).astype(np.int64)
    services, service_texts = _codes(table["Service"])
    plain_names = _codes(table["Name"])
    kinds, kind_texts = _codes(table["Kind"])
    statuses, status_texts = _codes(table["Status"])
    stage, engine, calls = _stages(table["Stage"], plain_names, _codes(table["Scope"]))
    names, name_texts = _with_stage_names(plain_names, _codes(table["StageName"]), stage)
    frames = _frames(plain_names, engine)[order]
    ids, parents = column("SpanId").astype(np.uint64), column("ParentSpanId").astype(np.uint64)
    if frames.any():
        parents = _unframed(ids, parents, frames, grouping.trace[order])
    return Batch(
        offsets=offsets,
        traces=grouping.ids,
        row=order,
        ids=ids,
        parents=parents,
        starts=starts,
        ends=ends,
        faults=faults,
        kinds=_by_text(kinds, kind_texts, lambda t: KINDS.get(t, 0), np.uint8)[order],
        services=services[order],
        service_texts=service_texts,
        names=names[order],
        name_texts=name_texts,
        errors=_by_text(statuses, status_texts, lambda t: t == "Error", np.bool_)[order],
        stages=stage[order],
        engines=engine[order],
        calls=calls[order],
        asynchronous=~column("Blocking").astype(np.bool_) | frames,
        resources=column("Resource").astype(np.uint64),
        has_attributes=column("HasAttributes").astype(np.bool_),
        attributes=Attributes(table["Attributes"].combine_chunks()),
    )


def _with_stage_names(names: tuple[Any, pa.Array], own: tuple[Any, pa.Array], stage: Any) -> tuple[Any, pa.Array]:
    """Span names, but the user's own stage name where a custom stage has one."""
    codes, texts = names
    own_codes, own_texts = own
    if len(own_texts) <= 1 and not any(own_texts.to_pylist()):
        return codes, texts
    named = _by_text(own_codes, own_texts, bool, np.bool_) & (stage == _CUSTOM)
    joined = pa.concat_arrays([texts, own_texts]).dictionary_encode()
    remap = joined.indices.to_numpy()
    return remap[np.where(named, own_codes + len(texts), codes)].astype(np.int32), joined.dictionary


def id_of(text: str) -> int:
    """A span id as the number that the inbox holds; any other text gets a number of its own. 0 means absent."""
    if not text:
        return 0
    try:
        if len(text) == 16:
            return int(text, 16)
    except ValueError:
        pass
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") | 1


def span_ids(texts: Iterable[str | None]) -> Any:
    """`id_of` each of these texts (uint64)."""
    known = [text or "" for text in texts]
    there = np.array([text != "" for text in known], np.bool_)
    found = np.zeros(len(known), np.uint64)
    if {len(text) for text in known} <= {0, 16}:
        try:
            numbers = np.frombuffer(bytes.fromhex("".join(known)), ">u8")
        except ValueError:
            numbers = found[:0]
        # Blanks are no digits, and fewer bytes: such ids are read one by one.
        if len(numbers) == there.sum():
            found[there] = numbers
            return found
    return np.array([id_of(text) for text in known], np.uint64)


def resource_hash(resource: Mapping[str, str]) -> int:
    """A number that equal resources share."""
    text = "\0".join(f"{k}\1{v}" for k, v in sorted(resource.items()))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def inbox_table(spans: Sequence[Span]) -> tuple[pa.Table, Resources]:
    """Spans of one trace in the form of the inbox, and the resources that they name; attributes of all of them."""
    resources: dict[int, Mapping[str, str]] = {}
    hashes: dict[int, int] = {}
    named: list[int] = []
    for span in spans:
        key = hashes.get(id(span.resource))
        if key is None:
            key = hashes[id(span.resource)] = resource_hash(span.resource)
            resources[key] = span.resource
        named.append(key)
    stage = [span.attributes.get("tailtrace.stage", "") for span in spans]
    trace = bytes.fromhex(spans[0].trace_id)[:16].rjust(16, b"\0") if spans else b""
    table = pa.table(
        {
            "TraceId": pa.array([trace] * len(spans), pa.binary(16)),
            "SpanId": span_ids(span.span_id for span in spans),
            "ParentSpanId": span_ids(span.parent_span_id for span in spans),
            "StartNs": pa.array([span.start_unix_ns for span in spans], pa.int64()),
            "DurationNs": pa.array([max(span.duration_ns, 0) for span in spans], pa.uint64()),
            "ClockFault": pa.array([span.clock_fault or span.duration_ns < 0 for span in spans], pa.bool_()),
            "Kind": pa.array([span.kind for span in spans], pa.string()),
            "Service": pa.array([span.service for span in spans], pa.string()),
            "Name": pa.array([span.name for span in spans], pa.string()),
            "Scope": pa.array([span.scope for span in spans], pa.string()),
            "Status": pa.array([span.status for span in spans], pa.string()),
            "Stage": pa.array(stage, pa.string()),
            "StageName": pa.array([span.attributes.get("tailtrace.stage_name", "") for span in spans], pa.string()),
            "Blocking": pa.array([span.attributes.get("tailtrace.blocking") != "false" for span in spans], pa.bool_()),
            "Resource": pa.array(named, pa.uint64()),
            "HasAttributes": pa.array([True] * len(spans), pa.bool_()),
            "Attributes": pa.array(
                [[*span.attributes.items(), *notes(span).items()] for span in spans], pa.map_(pa.string(), pa.string())
            ),
        }
    )
    return table, resources
