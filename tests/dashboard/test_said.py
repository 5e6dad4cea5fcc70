"""What analyses and errors say, in Chinese: every sentence that the code can say has its words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailtrace.dashboard.text import Text
from tailtrace.dashboard.text.said import book

ROOT = Path(__file__).resolve().parents[2]
# Every text with a blank in it that these files hold is shown on a page (statements of SQL apart).
SPOKEN = (
    *(f"analytics/verdicts/{name}.py" for name in (
        "rules", "host", "queueing", "device", "demand", "shared_gpu", "judge", "thresholds")),
    *(f"analytics/queries/{name}.py" for name in ("gpu_idle", "whatif", "batch_curve", "fleet", "replicas")),
    "analytics/queries/why.py",
)  # fmt: skip
# Where what a page or a form asks for is refused.
REFUSING = ("analytics/queries", "analytics/alerting", "dashboard/pages", "dashboard/components", "dashboard/format.py",
            "dashboard/api")  # fmt: skip
NOT_ON_PAGES = ("sql.py", "goals.py", "load_file")
FEW_VALUES = {
    "{} {} bytes / limit": ("pcie {} bytes / limit", "nvlink {} bytes / limit"),
    "no {}": ("no host counters", "no GPU counters"),
    "there is no {} {}": ("there is no rule {}", "there is no channel {}"),
    "{} {}{}: {}": ("rule {}: {}", "rule {}: {}: {}", "channel {}: {}", "channel {}: {}: {}"),
    "{} log lines": ("error log lines", "warning log lines"),
}


def shape_of(node: ast.AST) -> str | None:
    """A text, or one with values as `{}` for each."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Every text of some code but docstrings and statements of SQL."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = None if id(node) in docs | parts else shape_of(node)
        if text and " " in text.strip() and not re.search(r"\b(SELECT|FROM|WHERE)\b", text):
            yield text


def refusals_of(tree: ast.AST) -> Iterator[str]:
    """What is said when something is refused or not there."""
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else None
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args
        if named and call.func.id in ("Rejected", "NotFound", "ValueError") and (text := shape_of(call.args[0])):
            yield text


def is_known(text: str) -> bool:
    return all(one in book() for one in FEW_VALUES.get(text, (text,)))


@pytest.mark.parametrize("path", SPOKEN)
def test_every_sentence_of_an_analysis_has_its_words(path: str) -> None:
    said = set(texts_of(ast.parse((ROOT / path).read_text())))
    chinese = Text("zh")
    unknown = {text for text in said if not is_known(text) and chinese.step(text) == text}
    assert unknown == set()


def test_every_refusal_has_its_words() -> None:
    files = [
        file
        for place in REFUSING
        for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]
    said = {
        text for file in files if file.name not in NOT_ON_PAGES for text in refusals_of(ast.parse(file.read_text()))
    }  # fmt: skip
    assert len(said) > 40
    assert {text for text in said if not is_known(text)} == set()


def test_the_book_is_sound() -> None:
    for english, words in book().items():
        places = english.count("{}")
        used = {int(number) for number in re.findall(r"\{(\d+)(?::w)?\}", words)}
        assert used <= set(range(places)), english
        assert re.sub(r"\{\d+(:w)?\}", "", words).count("{") == 0, english


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("queue ms a request", "每请求排队毫秒数"),
        ("PCIe receive bytes / limit", "PCIe 接收字节 / 上限"),
        ("input tokens / reference, mean", "输入词元 / 参考，均值"),
        ("time the event loop lost to gil", "事件循环损失的时间占比（线程等待 Python 全局锁）"),
        (
            "the reference; reading / reference; judgement, calibrated on the lab (docs/verdicts.md)",
            "参考时段；读数 / 参考；经验值，在实验室中校准（docs/verdicts.md）",
        ),
        (
            "P95 TTFT of llm rose from 1.2 s to 2 s since 14:02 (version 1.5), 61 % of it queue, "
            "traffic mix explains none of it, 2 services and models, two traces",
            "自 14:02 起（版本 1.5），llm 的首词元时间 P95 从 1.2 s 升至 2 s，其中 61 % 来自排队，流量构成无法解释，"
            "2 组服务与模型，2 条追踪",
        ),
        (
            "P95 duration of batch rose from 1 s to 2 s (21 ms to 30 ms a token, 950 to 640 tokens/s) since 14:02, "
            "no stage stands out",
            "自 14:02 起，batch 的时长 P95 从 1 s 升至 2 s（每词元从 21 ms 到 30 ms，词元/s 从 950 到 640），"
            "没有突出的阶段",
        ),
        (
            "P95 TTFT of llm is 2 s, above 1s for 5m (n = 300)",
            "llm 的首词元时间 P95 为 2 s，高于 1s 已持续 5m（n = 300）",
        ),
        (
            "llm burns its error budget 14.2 times too fast (ttft within 2s, objective 99 %)",
            "llm 的错误预算消耗过快，为允许速度的 14.2 倍（首词元时间不超过 2s，目标 99 %）",
        ),
        ("no telemetry of queue since 2026-11-30 14:02", "queue 自 2026-11-30 14:02 起没有遥测"),
        ("rule 'x': objective: Input should be greater than 0.5", "规则 'x'：objective：应大于 0.5"),
        ("there is no order 'x'; there are a, b", "没有排序 'x'；可用的有 a, b"),
        ("what nobody of us says, ever", "what nobody of us says, ever"),
    ],
)
def test_a_sentence_keeps_its_values(sentence: str, words: str) -> None:
    assert Text("zh").said(sentence) == words
    assert Text("en").said(sentence) == sentence


@pytest.mark.parametrize("hostile", ["a, " * 330, "{0} {}" * 160, "(" * 999])
def test_text_of_strangers_comes_back_as_it_is(hostile: str) -> None:
    assert Text("zh").said(hostile[:1000]) == hostile[:1000]
    assert Text("zh").said(hostile * 10) == hostile * 10
