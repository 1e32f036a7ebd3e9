"""Two texts word by word: what was heard, what was added, what is missing. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum

from clients.word_error_rate import words


class Mark(Enum):
    """What became of a word."""

    RIGHT = "right"
    WRONG = "wrong"
    """Heard, and not said there."""
    MISSING = "missing"
    """Said, and not heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedWord:
    """One word of either text."""

    text: str
    mark: Mark


def marked(reference: str, heard: str) -> list[MarkedWord]:
    """What was heard, as it was written, with the words that are missing from it where they should be."""
    said, told = reference.split(), heard.split()
    matcher = SequenceMatcher(a=_keys(said), b=_keys(told), autojunk=False)
    found: list[MarkedWord] = []
    for what, said_from, said_to, told_from, told_to in matcher.get_opcodes():
        mark = Mark.RIGHT if what == "equal" else Mark.WRONG
        if mark is Mark.WRONG:
            found += [MarkedWord(text=word.lower(), mark=Mark.MISSING) for word in said[said_from:said_to]]
        found += [MarkedWord(text=word, mark=mark) for word in told[told_from:told_to]]
    return found


def _keys(texts: Sequence[str]) -> list[str]:
    return [" ".join(words(text)) for text in texts]
