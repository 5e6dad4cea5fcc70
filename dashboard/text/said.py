"""What the analyses say, in Chinese: their sentences are English with values in them, and are found again by their
shape.

`said.json` has each shape, `{}` where a value stands, and its words: `{0}` is the first value as it came, `{0:w}` the
same as a word of ours (a stage, a cause, another of these sentences). An answer of the API so stays one text in one
language, and a sentence that the book lacks is shown as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import orjson

_LONGEST: Final = 1000  # no sentence of ours is longer; values come from telemetry
_COMMAS: Final = 12
Word = Callable[[str], str]


class _Value(str):
    """A value that `{0:w}` says as a word."""

    word: Word

    def __format__(self, spec: str) -> str:
        return self.word(str(self)) if spec == "w" else str(self)


class Shape:
    """A sentence with values in it."""

    def __init__(self, english: str, words: str) -> None:
        self.literals: Final = [part for part in english.split("{}") if part]
        self.words: Final = words
        self._shape: Final = re.compile("(.+?)".join(re.escape(part) for part in english.split("{}")), re.DOTALL)

    def values(self, sentence: str) -> tuple[str, ...] | None:
        """The values of a sentence of this shape; None for any other."""
        if not all(part in sentence for part in self.literals):
            return None
        found = self._shape.fullmatch(sentence)
        return found.groups() if found else None


@cache
def book() -> Mapping[str, str]:
    """Chinese words by English shape."""
    words: dict[str, str] = orjson.loads((Path(__file__).resolve().parent / "said.json").read_bytes())
    return words


@cache
def _shapes() -> list[Shape]:
    """Those with values; the one that says most itself comes first."""
    with_values = [(english, words) for english, words in book().items() if "{}" in english]
    return [Shape(*one) for one in sorted(with_values, key=lambda one: -len(one[0].replace("{}", "")))]


def translated(sentence: str, word: Word) -> str:
    """A sentence, or several with commas between; what is none of ours stays. `word` says a stage or cause."""
    if len(sentence) > _LONGEST:
        return sentence
    return _translated(sentence, word) or sentence


def _translated(sentence: str, word: Word) -> str | None:
    known = book().get(sentence)
    if known is not None:
        return known
    # A value may hold a comma too, so a comma parts sentences only where there is one of ours on either side.
    commas = [found.start() for found in re.finditer(", ", sentence)][:_COMMAS]
    rests: dict[int, str] = {}
    for begin in [at + 2 for at in reversed(commas)] + [0]:
        joined: str | None = None
        for at in (at for at in commas if at >= begin):
            if at + 2 in rests and (first := _shaped(sentence[begin:at], word)) is not None:
                joined = f"{first}，{rests[at + 2]}"
                break
        made = joined or _shaped(sentence[begin:], word)
        if made is not None:
            rests[begin] = made
    return rests.get(0)


def _shaped(sentence: str, word: Word) -> str | None:
    """One sentence alone."""
    known = book().get(sentence)
    if known is not None:
        return known
    for shape in _shapes():
        values = shape.values(sentence)
        if values is not None:
            return shape.words.format(*(_value(one, word) for one in values))
    return None


def _value(text: str, word: Word) -> _Value:
    made = _Value(text)
    made.word = lambda name: found if (found := word(name)) != name else translated(name, word)
    return made
