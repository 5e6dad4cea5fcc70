"""Every word a reader sees, by key, in English and Simplified Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from tailtrace.causes import CAUSES

LANGUAGES: Final[Mapping[str, str]] = {"en": "English", "zh": "简体中文"}
TAGS: Final[Mapping[str, str]] = {"en": "en", "zh": "zh-CN"}  # as HTML and browsers name them
COOKIE: Final = "tailtrace_language"
_CAUSES: Final = {cause.code: cause for cause in CAUSES}


class Text:
    """The catalogue in one language; a key it lacks is a programming error and raises KeyError."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._words = catalogue(language)

    def __call__(self, key: str, **values: Any) -> str:
        words = self._words[key]
        return words.format(**values) if values else words

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
