"""What a client may ask of the text: nothing here hears better, it only writes differently."""

from dataclasses import dataclass
from typing import Final

from asr_model.transcript import Word

INNER_MARKS: Final = frozenset("'’-–—/&@")
"""Marks that belong to a word when they stand inside it."""
DIGIT_MARKS: Final = frozenset(".,:")
"""Marks that belong to a number when they stand between two digits."""
PLAIN_MARKS: Final = '.,!?;:"“”()…'
"""Marks around most words, all of which go."""
UNIT_MARKS: Final = frozenset("$€£¥%°")
"""Marks that belong to a number wherever they stand."""

FILLERS: Final = frozenset({"uh", "um", "uhh", "umm", "uhm"})
"""What ``filler_words=false`` leaves out."""

PROFANITY: Final = frozenset(
    {
        *("arsehole", "arseholes", "asshole", "assholes", "bastard", "bastards", "bitch", "bitches", "bitching"),
        *(
            "bullshit",
            "cocksucker",
            "cocksuckers",
            "cunt",
            "cunts",
            "dickhead",
            "dickheads",
            "fuck",
            "fucked",
            "fucker",
        ),
        *("fuckers", "fuckin", "fucking", "fucks", "goddamn", "goddamned", "motherfucker", "motherfuckers"),
        *("motherfucking", "piss", "pissed", "shit", "shits", "shitted", "shitting", "shitty", "slut", "sluts", "twat"),
        *("twats", "wanker", "wankers", "whore", "whores"),
    }
)
"""What ``profanity_filter=true`` masks: English words that are hardly anything else, as ``bare_word`` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenWord:
    """A word as the client gets it."""

    text: str
    """With punctuation and case."""
    bare: str
    """Lower case, without punctuation."""
    source: Word
    """Whose times and confidence it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """How the models' words are written; as the models write them, unless said otherwise."""

    punctuate: bool = True
    """Off: lower case and no punctuation."""
    filler_words: bool = True
    """Off: without ``FILLERS``."""
    mask_profanity: bool = False
    """The letters of ``PROFANITY`` as asterisks."""

    def written(self, words: tuple[Word, ...]) -> tuple[WrittenWord, ...]:
        """The words in order, each by itself: what is written of one depends on no other."""
        return tuple(each for word in words if self._is_kept(each := self._write(word)))

    def transcript(self, words: tuple[WrittenWord, ...]) -> str:
        """The words as one line."""
        return " ".join(word.text if self.punctuate else word.bare for word in words)

    def _write(self, word: Word) -> WrittenWord:
        bare = bare_word(word.text)
        if self.mask_profanity and bare in PROFANITY:
            return WrittenWord(text=_masked(word.text), bare=_masked(bare), source=word)
        return WrittenWord(text=word.text, bare=bare, source=word)

    def _is_kept(self, word: WrittenWord) -> bool:
        if not self.filler_words and word.bare in FILLERS:
            return False
        return self.punctuate or any(mark.isalnum() for mark in word.bare) or "*" in word.bare


def bare_word(written: str) -> str:
    """A word in lower case and without punctuation around it: ``"Don't,"`` → ``don't``, ``$3.50.`` → ``$3.50``.

    A word that is nothing but punctuation stays as it is.
    """
    lower = written.lower()
    if (plain := lower.strip(PLAIN_MARKS)).isalpha():  # most words, at a tenth of the time
        return plain
    bare = "".join(mark for at, mark in enumerate(lower) if _is_of_word(lower, at))
    return bare.strip("".join(INNER_MARKS)) or lower


def _is_of_word(text: str, at: int) -> bool:
    mark = text[at]
    if mark.isalnum() or mark in INNER_MARKS:
        return True
    if mark in DIGIT_MARKS:
        return text[at - 1 : at].isdigit() and text[at + 1 : at + 2].isdigit()
    return mark in UNIT_MARKS and any(other.isdigit() for other in text)


def _masked(text: str) -> str:
    return "".join("*" if mark.isalnum() else mark for mark in text)
