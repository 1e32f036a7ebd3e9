"""Word error rate, in one place. Pure.

Texts are compared after lower-casing and removing punctuation, as the training of the models does it.
"""

import re
from dataclasses import dataclass

import jiwer

NOT_A_LETTER = re.compile(r"[^a-z' ]")


def words(text: str) -> list[str]:
    """Lower-case words: everything but a–z and the apostrophe separates, so a hyphen does too."""
    return NOT_A_LETTER.sub(" ", text.lower()).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class WordErrors:
    """Errors against a reference; adds up over files."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    reference_words: int = 0

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(
            substitutions=self.substitutions + other.substitutions,
            deletions=self.deletions + other.deletions,
            insertions=self.insertions + other.insertions,
            reference_words=self.reference_words + other.reference_words,
        )

    @property
    def distance(self) -> int:
        """Edit distance in words."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def percent(self) -> float:
        """Word error rate in percent of the reference's words; of one word where the reference is empty."""
        return 100.0 * self.distance / max(1, self.reference_words)


def word_errors(reference: str, heard: str) -> WordErrors:
    """What it takes to turn what was heard into the reference."""
    truth, guess = words(reference), words(heard)
    if not truth or not guess:  # jiwer refuses an empty reference
        return WordErrors(deletions=len(truth), insertions=len(guess), reference_words=len(truth))
    found = jiwer.process_words(" ".join(truth), " ".join(guess))
    return WordErrors(
        substitutions=found.substitutions,
        deletions=found.deletions,
        insertions=found.insertions,
        reference_words=len(truth),
    )
