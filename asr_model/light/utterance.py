"""What the light model says, as integers in a slot: words made of two syllables, one for each tick with speech. Pure.

A word is known after two ticks and committed then; the first syllable alone is the draft. So partial results come as
often and grow as those of a model that understands something, and every one of them tells which audio it was made of.
"""

from dataclasses import dataclass, field
from typing import Final

from asr_model.transcript import EndedUtterance, UtteranceEnd, Word

SAMPLE_RATE: Final = 16_000
MAX_WORDS: Final = 48
"""Words of an utterance, some 15 s, after which it is cut."""
WIDTH: Final = 7 + 3 * MAX_WORDS
"""Integers of an utterance."""
CONSONANTS: Final = "bdfghjklmnprstvwz"
VOWELS: Final = "aeiou"


@dataclass(frozen=True, slots=True)
class Said:
    """One or two syllables."""

    syllables: int
    """First syllable + 1, and as many times 513 as the second syllable + 1: 0 is none."""
    first_sample: int
    end_sample: int

    def word(self) -> Word:
        """As words are told."""
        second, first = divmod(self.syllables, SECOND)
        text = syllable(first - 1) + (syllable(second - 1) if second else "")
        return Word(
            text=text, start_s=self.first_sample / SAMPLE_RATE, end_s=self.end_sample / SAMPLE_RATE, confidence=1.0
        )


SECOND: Final = 513
"""Place value of a word's second syllable."""
NOTHING: Final = Said(0, 0, 0)


@dataclass(slots=True, kw_only=True)
class Utterance:
    """The open utterance of a slot, or the silence before it."""

    first_sample: int = 0
    """Where its audio starts; while it is not open, where that of the next one may start."""
    is_open: bool = False
    silent_samples: int = 0
    """At its end."""
    draft: Said = NOTHING
    words: list[Said] = field(default_factory=list)

    @classmethod
    def unpack(cls, numbers: list[int]) -> "Utterance":
        """From the slot; all zeros are a new sequence."""
        first_sample, is_open, silent_samples, n_words = numbers[:4]
        words = [Said(*numbers[at : at + 3]) for at in range(7, 7 + 3 * n_words, 3)]
        return cls(
            first_sample=first_sample,
            is_open=bool(is_open),
            silent_samples=silent_samples,
            draft=Said(*numbers[4:7]),
            words=words,
        )

    def pack(self) -> list[int]:
        """Into the slot: ``WIDTH`` integers."""
        numbers = [self.first_sample, int(self.is_open), self.silent_samples, len(self.words)]
        for said in (self.draft, *self.words):
            numbers += (said.syllables, said.first_sample, said.end_sample)
        return numbers + [0] * (WIDTH - len(numbers))

    def hear(self, symbol: int, first_sample: int, end_sample: int) -> None:
        """Speech: one more syllable from the samples of a tick."""
        if not self.is_open:
            self.is_open = True
            self.first_sample = max(self.first_sample, first_sample)
        self.silent_samples = 0
        if self.draft.syllables:
            syllables = self.draft.syllables + SECOND * (symbol + 1)
            self.words.append(Said(syllables, self.draft.first_sample, end_sample))
            self.draft = NOTHING
        else:
            self.draft = Said(symbol + 1, first_sample, end_sample)

    def rest(self, samples: int) -> None:
        """Silence."""
        self.silent_samples += samples

    def end(self, cause: UtteranceEnd, end_sample: int) -> EndedUtterance:
        """Ends it there; what follows is the next one's."""
        said = [*self.words, self.draft] if self.draft.syllables else self.words
        ended = EndedUtterance(
            cause=cause,
            first_sample=min(self.first_sample, end_sample),
            end_sample=end_sample,
            words=tuple(each.word() for each in said),
        )
        self.first_sample, self.is_open, self.silent_samples = end_sample, False, 0
        self.draft, self.words = NOTHING, []
        return ended


def syllable(symbol: int) -> str:
    """A spelling for each of 512 symbols: consonant, vowel, and for higher ones a consonant again."""
    rest, vowel = divmod(symbol, len(VOWELS))
    last, first = divmod(rest, len(CONSONANTS))
    return CONSONANTS[first] + VOWELS[vowel] + (CONSONANTS[last - 1] if last else "")
