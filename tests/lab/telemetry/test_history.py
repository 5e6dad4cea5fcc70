from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailtrace.lab import Scenario, history
from tailtrace.lab.telemetry.spans import gap_bins
from tailtrace.stages import BY_NAME

END = 1_790_000_000_000_000_000


def attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


class Spans:
    """The decoded spans of a history: (resource, scope, span) with attributes as dicts."""

    def __init__(self, name: str, hours: float = 0.5, seed: int = 1) -> None:
        self.all: list[tuple[dict[str, Any], str, Any, dict[str, Any]]] = []
        self.sizes = []
        for body in history(Scenario.load(name), end_unix_ns=END, hours=hours, seed=seed):
            message = ExportTraceServiceRequest.FromString(body)
            self.sizes.append(
                sum(len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans)
            )
            for resource in message.resource_spans:
                for scope in resource.scope_spans:
                    named = attributes(resource.resource.attributes)
                    self.all += [(named, scope.scope.name, span, attributes(span.attributes)) for span in scope.spans]

    def traces(self) -> dict[bytes, list[tuple[dict[str, Any], Any, dict[str, Any]]]]:
        found = defaultdict(list)
        for resource, scope, span, named in self.all:
            if scope == "tailtrace":
                found[span.trace_id].append((resource, span, named))
        return found


@pytest.fixture(scope="module")
def mixed() -> Spans:
    return Spans("preemption", hours=0.75)


def test_the_same_arguments_give_the_same_bytes() -> None:
    def bodies(seed: int) -> list[bytes]:
        return list(history(Scenario.load("mixed"), end_unix_ns=END, hours=0.4, seed=seed))

    assert bodies(5) == bodies(5)
    assert bodies(5) != bodies(6)


def test_runs_of_one_seed_at_other_times_share_no_id_but_the_machines() -> None:
    def run(end_unix_ns: int) -> tuple[set[bytes], set[str]]:
        traces, gpus = set(), set()
        for body in history(Scenario.load("idle"), end_unix_ns=end_unix_ns, hours=0.5, seed=1):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                gpus.add(attributes(resource.resource.attributes).get("tailtrace.gpu_uuids", ""))
                traces |= {span.trace_id for scope in resource.scope_spans for span in scope.spans}
        return traces, gpus

    (earlier, earlier_gpus), (later, later_gpus) = run(END), run(END + 1800 * 10**9)
    assert earlier
    assert not earlier & later
    assert earlier_gpus == later_gpus


def test_bodies_are_bounded_and_in_order_of_time(mixed: Spans) -> None:
    assert max(mixed.sizes) <= 2000
    ends = [span.end_time_unix_nano for _, scope, span, _ in mixed.all if scope == "tailtrace"]
    assert max(ends) <= END + 120 * 10**9
    # A request is written when its answer is made; who reads 1,000 tokens at four a second ends minutes later.
    slowest_ns = 600 * 10**9
    latest = 0
    for end in ends:
        assert end > latest - slowest_ns
        latest = max(latest, end)


def test_ids_are_unique_and_every_parent_is_there(mixed: Spans) -> None:
    ids = [span.span_id for _, _, span, _ in mixed.all]
    assert len(ids) == len(set(ids))
    for spans in mixed.traces().values():
        known = {span.span_id for _, span, _ in spans}
        assert [span.name for _, span, _ in spans if not span.parent_span_id].__len__() == 1
        assert all(span.parent_span_id in known for _, span, _ in spans if span.parent_span_id)


def test_every_span_lies_inside_its_parent_and_stages_are_of_the_vocabulary(mixed: Spans) -> None:
    for spans in mixed.traces().values():
        by_id = {span.span_id: span for _, span, _ in spans}
        for _, span, named in spans:
            assert span.start_time_unix_nano <= span.end_time_unix_nano
            if parent := by_id.get(span.parent_span_id):
                assert parent.start_time_unix_nano <= span.start_time_unix_nano
                assert span.end_time_unix_nano <= parent.end_time_unix_nano
            if "tailtrace.stage" in named:
                assert named["tailtrace.stage"] in BY_NAME
                assert span.name == named["tailtrace.stage"]


def test_a_served_request_is_explained_almost_whole(mixed: Spans) -> None:
    """Stages of the engine cover at least 97 % of its request, and never more than all of it but for overlaps."""
    checked = 0
    for spans in mixed.traces().values():
        for resource, entry, named in spans:
            if resource["service.name"] != "llm-chat" or named.get("tailtrace.outcome") != "ok":
                continue
            stages = sorted(
                (max(s.start_time_unix_nano, 0), s.end_time_unix_nano)
                for _, s, n in spans if s.parent_span_id == entry.span_id and "tailtrace.stage" in n
            )  # fmt: skip
            covered, upto = 0, entry.start_time_unix_nano
            for start, end in stages:
                covered += max(0, end - max(start, upto))
                upto = max(upto, end)
            assert covered >= 0.97 * (entry.end_time_unix_nano - entry.start_time_unix_nano)
            checked += 1
    assert checked > 500


def test_a_streamed_request_says_when_its_tokens_came(mixed: Spans) -> None:
    checked = 0
    for spans in mixed.traces().values():
        for _resource, entry, named in spans:
            if "tailtrace.gaps" not in named or named["tailtrace.outcome"] != "ok":
                continue
            duration = entry.end_time_unix_nano - entry.start_time_unix_nano
            assert 0 < named["tailtrace.ttft_ns"] <= named["tailtrace.last_token_ns"] <= duration
            gaps = dict(map(int, pair.split(":")) for pair in named["tailtrace.gaps"].split(","))
            assert sum(gaps.values()) == named["gen_ai.usage.output_tokens"] - 1
            spread = named["tailtrace.last_token_ns"] - named["tailtrace.ttft_ns"]
            assert sum(n * 1.02**k for k, n in gaps.items()) == pytest.approx(spread, rel=0.021)
            for stall in named.get("tailtrace.stalls", "").split(","):
                if stall:
                    offset, length = map(int, stall.split(":"))
                    assert named["tailtrace.ttft_ns"] <= offset <= offset + length <= named["tailtrace.last_token_ns"]
            checked += 1
    assert checked > 500


def test_resources_say_who_and_on_what_and_that_it_is_simulated(mixed: Spans) -> None:
    instances = {resource["service.instance.id"]: resource for resource, _, _, _ in mixed.all}
    assert len(instances) == 4
    assert all(resource["tailtrace.simulated"] is True for resource in instances.values())
    engines = [resource for resource in instances.values() if resource["service.name"] == "llm-chat"]
    assert len(engines) == 2
    for resource in engines:
        assert resource["tailtrace.gpu_model"] == "NVIDIA H100 80GB HBM3"
        assert len(set(resource["tailtrace.gpu_uuids"].split(","))) == resource["tailtrace.tp"] == 4
        assert resource["tailtrace.model"] == "llama2-70b"


def test_steps_stand_for_all_steps_and_name_who_was_in_them(mixed: Spans) -> None:
    engine_ids = {
        resource["tailtrace.engine_id"] for resource, _, _, _ in mixed.all if "tailtrace.engine_id" in resource
    }
    preempted = 0
    requests = {
        named["tailtrace.engine_request_id"] for _, _, _, named in mixed.all if "tailtrace.engine_request_id" in named
    }
    named_in_steps = set()
    for _, scope, span, named in mixed.all:
        if scope == "tailtrace.steps":
            assert span.name == "step"
            assert named["tailtrace.engine_id"] in engine_ids
            assert named["tailtrace.sample_weight"] >= 1
            assert 0 <= named["tailtrace.kv_usage"] <= 1
            assert 0 < named["tailtrace.gpu_ns"] <= span.end_time_unix_nano - span.start_time_unix_nano
            preempted += len(named.get("tailtrace.preempted", "").split(",")) if "tailtrace.preempted" in named else 0
            named_in_steps |= {pair.split(":")[0] for pair in named.get("tailtrace.prefill", "").split(",") if pair}
    assert preempted > 10
    # In the last hour every prefill is kept: each request that got as far is named.
    assert len(named_in_steps & requests) > 0.98 * len(named_in_steps)


def test_a_deploy_changes_version_and_instance() -> None:
    spans = Spans("demo", hours=5.0, seed=2)
    by_version = defaultdict(set)
    for resource, _, span, named in spans.all:
        if resource["service.name"] == "llm-chat" and "tailtrace.request" in named:
            by_version[resource["service.version"]].add(resource["service.instance.id"])
            deployed = span.start_time_unix_nano >= END - 4 * 3600 * 10**9
            assert resource["service.version"] == ("1.5.0" if deployed else "1.4.2")
    assert [len(instances) for instances in by_version.values()] == [2, 2]
    assert not by_version["1.4.2"] & by_version["1.5.0"]


def test_a_shorter_run_begins_after_what_happened_before_it() -> None:
    """The last half hour of the demo: the deploy is done, the crash of eleven hours ago is not seen."""
    spans = Spans("demo", hours=0.5, seed=2)
    assert {r["service.version"] for r, _, _, _ in spans.all if r["service.name"] == "llm-chat"} == {"1.5.0"}
    assert not [span for _, _, span, _ in spans.all if span.name == "startup"]


def test_a_start_up_is_a_trace_of_its_phases() -> None:
    spans = Spans("cold_start", hours=1.0)
    (entry,) = [span for _, _, span, _ in spans.all if span.name == "startup"]
    phases = [(span, named) for _, span, named in spans.traces()[entry.trace_id] if span.parent_span_id]
    assert [named["tailtrace.stage"] for _, named in phases] == [
        "engine_init", "model_load", "compile", "kv_alloc", "graph_capture", "warmup",
    ]  # fmt: skip
    covered = sum(span.end_time_unix_nano - span.start_time_unix_nano for span, _ in phases)
    assert covered == entry.end_time_unix_nano - entry.start_time_unix_nano == 180 * 10**9


def test_gap_bins_are_ceilings_of_the_logarithm() -> None:
    assert gap_bins({1: 2, 10**9: 1}) == "0:2,1047:1"
