"""Every word a reader sees, by key, in English and Simplified Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from tailtrace.causes import CAUSES
from tailtrace.dashboard.text.said import translated

LANGUAGES: Final[Mapping[str, str]] = {"en": "English", "zh": "简体中文"}
TAGS: Final[Mapping[str, str]] = {"en": "en", "zh": "zh-CN"}  # as HTML and browsers name them
COOKIE: Final = "tailtrace_language"
_COUNTED: Final = re.compile(r"\{(\w+)\|([^|}]*)\|([^}]*)\}")  # {n|request|requests}: by whether n is 1
_YES_OR_NO: Final = ("streaming", "cached")
_YES: Final = {"yes": "true", "no": "false"}
_CAUSES: Final = {cause.code: cause for cause in CAUSES}


class Text:
    """The catalogue in one language; a key it lacks is a programming error and raises KeyError."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._words = catalogue(language)

    def __call__(self, key: str, **values: Any) -> str:
        words = self._words[key]
        if not values:
            return words
        if "|" in words:
            words = _COUNTED.sub(lambda found: found[2] if str(values[found[1]]) == "1" else found[3], words)
        return words.format(**values)

    def stage(self, name: str) -> str:
        """A stage's name for people; the vocabulary's own name is the fallback."""
        return self._words.get(f"stage.{name}", name)

    def meaning(self, name: str) -> str:
        """What a stage means, for hover."""
        return self._words.get(f"meaning.{name}", "")

    def cause(self, code: str) -> str:
        """What a cause is called; its code where it is a new one."""
        known = _CAUSES.get(code)
        return code if known is None else known.zh if self.language == "zh" else known.en

    def step(self, name: str) -> str:
        """A step of the diagnosis: English is its own name."""
        return self._words.get(f"step.name.{name}", name)

    def or_else(self, key: str, fallback: str) -> str:
        """The words of a key that data name, which may be newer than the catalogue."""
        return self._words.get(key, fallback)

    def outcome(self, name: str) -> str:
        return self._words.get(f"outcome.{name}", name)

    def value(self, attribute: str, value: str) -> str:
        """A value of an attribute: outcomes, yes and no have words, names stay."""
        if attribute == "outcome":
            return self.outcome(value)
        return self._words.get(f"choice.{_YES.get(value, value)}", value) if attribute in _YES_OR_NO else value

    def said(self, sentence: str) -> str:
        """What an analysis or an error says; English is its own."""
        return sentence if self.language == "en" else translated(sentence, self._word)

    def listed(self, sentences: Iterable[str]) -> str:
        """Several of them, one after the other."""
        return self("list").join(self.said(one) for one in sentences)

    def _word(self, name: str) -> str:
        """A stage or a cause by its name; the name itself where it is neither."""
        return self._words.get(f"stage.{name}") or self.cause(name)


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Words of one language, from its file beside this one."""
    words: dict[str, str] = orjson.loads((Path(__file__).resolve().parent / f"{language}.json").read_bytes())
    return words


def text_of_request(accept_language: str, cookies: Mapping[str, str]) -> Text:
    """The reader's choice by cookie, else the browser's first known language, else English."""
    chosen = cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return Text(chosen)
    for part in accept_language.split(","):
        language = part.split(";")[0].strip().lower().split("-")[0]
        if language in LANGUAGES:
            return Text(language)
    return Text("en")
