"""Hugging Face tokenizers: stages of the request they run in, and of nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tailtrace.instrumentation import request, stage
from tailtrace.instrumentation.engines import tokenizers
from tailtrace.instrumentation.record import CURRENT
from tailtrace.instrumentation.testing import captured


@pytest.fixture
def tokenizer() -> Any:
    class Tokenizer:
        def encode(self, text: str) -> list[int]:
            return [len(text)]

        def encode_batch(self, texts: list[str]) -> list[list[int]]:
            return [self.encode(text) for text in texts]

        def decode(self, ids: list[int]) -> str:
            return "x" * ids[0]

    tokenizers.hook(SimpleNamespace(Tokenizer=Tokenizer))
    return Tokenizer()


def names(spans: list[Any]) -> list[str]:
    return [span.name for span in spans if span.name != "generate"]


def test_encode_and_decode_are_stages_and_a_batch_is_one(tokenizer: Any) -> None:
    with captured() as spans:
        with request("generate"):
            assert tokenizer.encode_batch(["ab", "c"]) == [[2], [1]]
            assert tokenizer.decode([2]) == "xx"
        assert names(spans()) == ["tokenize", "detokenize"]


def test_inside_a_stage_that_says_so_already_nothing_is_added(tokenizer: Any) -> None:
    with captured() as spans:
        with request("generate"), stage("tokenize"):
            tokenizer.encode("ab")
        assert names(spans()) == ["tokenize"]


def test_a_task_that_outlives_its_request_adds_nothing_to_it(tokenizer: Any) -> None:
    with captured() as spans:
        with request("generate") as record:
            pass
        token = CURRENT.set(record)
        tokenizer.decode([1])
        CURRENT.reset(token)
        assert names(spans()) == []


def test_outside_of_a_request_it_passes(tokenizer: Any) -> None:
    with captured() as spans:
        assert tokenizer.encode("abc") == [3]
        assert spans() == []
