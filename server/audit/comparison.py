"""Whether a sequence heard the same in company as alone; if not, whether that may be rounding. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from asr_model.transcript import Word


class Outcome(Enum):
    """Of an audit."""

    SAME = "same"
    TIE = "tie"
    """The first difference is where the two best tokens lay closer together than rounding noise: no misrouting."""
    MISMATCH = "mismatch"
    """It heard what it would not have heard alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an audit found."""

    outcome: Outcome
    told: tuple[Word, ...]
    """What the sequence heard."""
    alone: tuple[Word, ...]
    at: int | None = None
    """Index of the first word that differs; None: all are the same."""
    margin: float | None = None
    """How far the tokens there were from being others, on the surer side; None: not known."""


def compare(told: Sequence[Word], alone: Sequence[Word], rounding_margin: float) -> Verdict:
    """Compares the texts of what was heard in company and alone.

    Args:
        told: In company.
        alone: By itself.
        rounding_margin: A token whose logit leads by less may be another one in another batch.
    """
    at = _first_difference(told, alone)
    if at is None:
        return Verdict(outcome=Outcome.SAME, told=tuple(told), alone=tuple(alone))
    margins = [_margin_at(words, at) for words in (told, alone) if len(words) > at]
    known = [margin for margin in margins if margin is not None]
    margin = max(known) if len(known) == len(margins) else None
    is_tie = margin is not None and margin < rounding_margin
    return Verdict(
        outcome=Outcome.TIE if is_tie else Outcome.MISMATCH,
        told=tuple(told),
        alone=tuple(alone),
        at=at,
        margin=margin,
    )


def _first_difference(told: Sequence[Word], alone: Sequence[Word]) -> int | None:
    for index, (one, other) in enumerate(zip(told, alone, strict=False)):
        if one.text != other.text:
            return index
    return None if len(told) == len(alone) else min(len(told), len(alone))


def _margin_at(words: Sequence[Word], at: int) -> float | None:
    """Least margin of the word and the next, whose first token decided where the word ends; None if not known."""
    margins = [word.margin for word in words[at : at + 2]]
    return min((margin for margin in margins if margin is not None), default=None)
