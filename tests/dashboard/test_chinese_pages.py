"""Chinese pages hold no English but names, ids, code and the units and abbreviations that Chinese uses too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from dashboard_seed import MS, TRACE, Spans, spans_of
from page_words import words_of
from seeding import SECOND, T0, insert_requests, insert_traces, judge_traces, request
from slower_seed import fill_slower

from tailtrace.analytics.alerting import book
from tailtrace.analytics.alerting.rules import parse_channel, parse_rule
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.shell import freshness_words, range_controls, sidebar
from tailtrace.dashboard.pages import MISSING, NAVIGATION, page_for
from tailtrace.dashboard.parts import parts
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import encode_traces

# What a reader of Chinese reads as it is.
SAME = frozenset(
    re.findall(
        r"\S+",
        """ns µs ms s min h d n GB MB kB TB B P50 P90 P95 P99 P50P95P99 A B vs x API HTTP gRPC OTLP JSON CSV TOML URL
        MCP OpenAPI Perfetto Tailtrace tailtrace English UTC CPU GPU GPUs HBM SM PCIe NVLink KV KempnerPulse
        DCGM NVML XID GPM TCP vLLM SLO TTFT TPOT rank token id tok webhook apprise Slack PagerDuty admin
        read ingest Asia Shanghai Europe Berlin America New York Los Angeles TensorRT LLM perf host analysis
        docs verdicts md vLLM kv_cache_usage_perc logprobs chrome tracing OpenTelemetry SGLang FastAPI ASGI
        run sample CUDA resiliency extension ID Ctrl K shift esc w a j k o p f search_requests
        explain_request why_slow compare whatif list_regressions TAILTRACE_TOKEN TAILTRACE_ALERTS_FILE
        duration ttft tpot https auth network version STAGE FACTOR ATTRIBUTE VALUE http status_code""",
    )
)
# Names of the seed, and of our own tables.
NAMES = frozenset(
    re.findall(
        r"\S+",
        """api b engine m r c e1 host worker gateway POST v1 chat completions fast slow quiet regressions hook ok GPU-a
        hooks example old new orphan orphans overrun GET kernel NVIDIA H100 eager bf16""",
    )
)
VERDICT = {
    "cause": "capacity", "confidence": "high", "share": 0.8,
    "evidence": [{"metric": "arrivals / reference", "value": 2.0, "threshold": 1.1, "source": "the reference"}],
}  # fmt: skip
BODY = {
    "kind": "regression", "service": "api", "metric": "duration", "before": {"ns": 100 * MS, "n": 5000},
    "after": {"ns": 140 * MS, "n": 900}, "change_ns": 40 * MS, "interval_ns": [35 * MS, 45 * MS],
    "traffic_share": 0.05, "stages": [{"stage": "queue", "before_ns": MS, "after_ns": 50 * MS, "share": 0.97}],
    "verdict": VERDICT, "verdicts": [VERDICT], "examples": [], "links": {"requests": "/requests"},
}  # fmt: skip
STATEMENTS = (
    "INSERT INTO alerts (Id, Rule, Cause, State, OpenedAt, Summary, Body, Revision) VALUES"
    " ('e1', 'regressions', 'c', 'open', '2026-09-21 14:00:00', 'P95 duration of api rose from 100 ms to 140 ms since"
    " 13:40, 97 % of it queue, traffic mix explains none of it, two traces', {body:String}, 1)",
    "INSERT INTO verdicts (Service, Start, End, State, Cause, Share, Confidence, Relative, Body, UpdatedAt) VALUES"
    " ('api', '2026-09-21 14:00:00', '2026-09-21 14:05:00', 'slower', 'capacity', 0.8, 'high', 0.4, {body:String},"
    " now64(6))",
    "INSERT INTO markers (Id, Time, Service, Kind, Was, Became, Text, Source, UpdatedAt) VALUES"
    " ('m', '2026-09-21 13:40:00', 'api', 'version', 'old', 'new', '', 'telemetry', now64(6))",
    "INSERT INTO client_losses (Minute, Service, Instance, Signal, Reason, Dropped) VALUES"
    " (now(), 'api', 'r', 'traces', 'full', 7)",
    "INSERT INTO losses (Time, Service, Signal, Kind, Reason, Count) VALUES"
    " (now(), '', 'logs', 'rejected', 'two_values', 3)",
)  # fmt: skip
RULES = (
    {"kind": "slo", "name": "fast", "service": "api", "sli": "duration", "objective": 0.9, "within": "200ms"},
    {"kind": "threshold", "name": "slow", "metric": "ttft", "above": "1s"},
    {"kind": "silence", "name": "quiet"},
)


def english(text: str) -> set[str]:
    """What of it is neither Chinese nor known to a reader of it: words of letters; ids hold digits."""
    plain = re.sub(r"<[^>]*>|\b[0-9a-f]{16,}\b|https?://\S+|/[\w/%?=&.-]*", " ", text)
    return {word for word in re.findall(r"[A-Za-z_µ][A-Za-z0-9_µ-]*", plain) if word not in SAME | NAMES}


# So that what is looked through holds what analyses say, and not only what pages say themselves.
ANALYSES = {
    "原因未知：请求排队更久；没有引擎步，无法排除显存原因", "参考时段", "到达量 / 参考", "没有主机计数器",
    "缺少：引擎步、GPU 计数器、主机计数器", "队列保持原样：只计算所改阶段自身的时间",
}  # fmt: skip


@pytest.fixture
def full(store: Store, settings: ServerSettings, tmp_path: Path) -> Store:
    """Something of everything that pages have words for."""
    fill_slower(store)
    started = {"Kind": "startup", "IsRoot": False, "Service": "engine", "Replica": "r", "ModelLoadNs": 40 * SECOND}
    insert_requests(store, [request(9000, duration_ns=60 * SECOND, end_ns=T0 - 600 * SECOND, **started)])
    spans: Spans = [
        (1, 0, "POST", 0, 100, {"kind": 2, "tailtrace.request": True, "tailtrace.route": "/v1/chat"}),
        (2, 1, "queue", 10, 30, {"tailtrace.stage": "queue"}),
        (3, 1, "decode", 30, 130, {"tailtrace.stage": "decode"}),
        (4, 9, "orphan", 20, 25, {}),
    ]
    insert_traces(store, tmp_path, [encode_traces({"service.name": "gateway"}, spans_of(TRACE, spans))], "full")
    judge_traces(store, [TRACE])
    for statement in STATEMENTS:
        store.command(statement, {"body": orjson.dumps(BODY).decode()} if "{body" in statement else None)
    kept = book.load(store, settings.alerts_file)
    for rule in RULES:
        book.put(store, kept, "rule", parse_rule(rule))
    hook = {"name": "hook", "kind": "webhook", "url": "https://hooks.example/x"}
    book.put(store, kept, "channel", parse_channel(hook))
    return store


def test_no_english_is_left(full: Store, settings: ServerSettings) -> None:
    text = Text("zh")
    box = f"{T0 - 90 * 60 * SECOND},{T0 - 30 * SECOND},0,{10 * SECOND}"
    paths = [(one.path, "service=api") for one in NAVIGATION if one.ranged]
    paths += [(one.path, "") for one in NAVIGATION if not one.ranged]
    paths += [
        ("/requests", f"service=api&box={box}&order=queue"), ("/requests", "since=2020-01-01&until=2020-01-02"),
        ("/requests/" + TRACE, ""), ("/requests/" + f"{2000:032x}", ""), ("/requests/0", ""), ("/none", ""),
        ("/alerts", "id=e1"), ("/alerts", "id=x"), ("/rules", "kind=threshold"), ("/rules", "kind=slo"),
        ("/rules", "kind=regression"), ("/rules", "kind=silence"), ("/rules", "id=fast"), ("/rules", "id=x"),
        ("/channels", "state=new"), ("/compare", "service=api&state=day"), ("/gpus", "service=engine"),
        ("/what-if", "service=api&x_queue=0.5"), ("/what-if", "service=engine"), ("/replicas", "service=engine"),
        ("/diagnosis", "service=api&since=2026-09-21T13:30:00Z&until=2026-09-21T14:13:00Z"),
    ]  # fmt: skip
    found: dict[str, set[str]] = {}
    seen: set[str] = set()

    def look(where: str, drawn: Any) -> None:
        for said in words_of(drawn):
            seen.add(said)
            left = english(said)
            if left:
                found.setdefault(where, set()).add(f"{sorted(left)} in {said[:120]!r}")

    for path, search in paths:
        address, page = Address.parse("?" + search), page_for(path)
        look(f"{path}?{search}", page.draw(full, settings, text, path, address))
        look(f"{path}?{search} controls", page.controls(full, text, address) if page.controls else None)
    spec = {"trace": f"{2010:032x}", "entry": "", "rule": "slow", "since": str(T0 - 3600 * SECOND), "until": str(T0),
            "root": "true"}  # fmt: skip
    head = page_for("/requests/" + spec["trace"]).draw(full, settings, text, "/requests/" + spec["trace"], Address())
    spec["entry"] = next(iter(re.findall(r"'entry': '(\w{16})'", str(head))), "")
    for name, part in parts(settings).items():
        look(name, part(full, text, spec))
    look("sidebar", sidebar(text, Address(), "overview"))
    look("range", range_controls(text, Address(since="1", until="2")))
    look("fresh", freshness_words(full, text))
    look("missing", MISSING.draw(full, settings, text, "/none", Address()))
    assert found == {}
    assert ANALYSES - seen == set()


def test_an_empty_store_speaks_chinese_too(store: Store, settings: ServerSettings) -> None:
    text = Text("zh")
    left = {
        one.path: words
        for one in NAVIGATION
        for drawn in [one.draw(store, settings, text, one.path, Address())]
        if (words := set().union(*map(english, words_of(drawn))))
    }
    assert left == {}


def test_english_is_found() -> None:
    assert english("请求 requests 12 ms") == {"requests"}
    assert english("P95 首词元 1.2 s，0af7651916cd43dd8448eb211c80319c") == set()
