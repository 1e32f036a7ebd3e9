"""What experiments with a model show, and whether that agrees with the scheduler it is to have. Pure.

A model is stateful if an answer depends on what the same sequence had before; then every row must reach the slot with
that state, which the sequence batcher sees to. It is stateless if none does; then any request may join any batch. What
depends on anything else (company, another tenant, another slot) is right under no scheduler.
"""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_SHOWN_CHARS: Final = 60
MAX_SHOWN_NUMBERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model said of one row, in a form that can be compared and shown."""

    said: str
    """Words, whole numbers, texts, or what went wrong: compared as they are."""
    numbers: tuple[float, ...] = ()
    """Compared with a tolerance."""
    is_error: bool = False
    """The model failed; ``said`` tells how."""

    def shown(self) -> str:
        """For people."""
        if not self.numbers or self.said:
            text = self.said if len(self.said) <= MAX_SHOWN_CHARS else self.said[: MAX_SHOWN_CHARS - 1] + "…"
            return f"“{text}”" if text else "nothing"
        listed = ", ".join(f"{number:.4g}" for number in self.numbers[:MAX_SHOWN_NUMBERS])
        return f"[{listed}{', …' if len(self.numbers) > MAX_SHOWN_NUMBERS else ''}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far two answers to the same may lie apart, by rounding alone."""

    number: float
    """Of numbers, as a share of the greater one (of 1 if both are smaller)."""
    words: float = 0.0
    """Part of the words that may differ, 0 to 1."""


EXACT: Final = Tolerance(number=0.01)
"""For float32: batches of another size round otherwise, which changes no word."""
ROUNDED: Final = Tolerance(number=0.1, words=0.34)
"""For shorter number formats, where a word may tip over."""


class Question(Enum):
    """What an experiment asks."""

    MEMORY = "memory"
    """Does an answer depend on what the sequence (or whoever asked before) had said earlier?"""
    RESET = "reset"
    """Is a sequence answered alike in a slot that another had before?"""
    COMPANY = "company"
    """… among other rows and in another order?"""
    BYSTANDER = "bystander"
    """Does a step leave other slots as they are?"""
    PLACE = "place"
    """Is all that is remembered in the slot, so that it can be moved?"""
    VARIETY = "variety"
    """Are different inputs answered differently, so that the other answers mean something?"""
    INSTANCE = "instance"
    """Does another copy of the model answer alike?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One experiment's outcome."""

    question: Question
    holds: bool
    """Whether the question's answer is yes."""
    sentence: str
    """What was seen, in words."""


class Conclusion(Enum):
    """What a model is."""

    STATEFUL = "stateful"
    STATELESS = "stateless"
    LEAKY = "leaky"
    """Its answers depend on what no scheduler can keep from it."""
    UNDECIDED = "undecided"
    """It answers everything alike, so that nothing can be seen."""


INDEPENDENCE: Final = frozenset(
    {Question.RESET, Question.COMPANY, Question.BYSTANDER, Question.PLACE, Question.INSTANCE}
)
"""What must hold of every model."""
NEEDED: Final = {Conclusion.STATEFUL: "sequence", Conclusion.STATELESS: "dynamic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a model is, and why that is said."""

    conclusion: Conclusion
    observations: tuple[Observation, ...]

    @property
    def evidence(self) -> tuple[str, ...]:
        """The sentences that the conclusion rests on."""
        return tuple(each.sentence for each in self.observations if self._matters(each))

    @property
    def scheduler(self) -> str | None:
        """``sequence`` or ``dynamic``; None: neither can be said."""
        return NEEDED.get(self.conclusion)

    def _matters(self, observation: Observation) -> bool:
        if self.conclusion is Conclusion.LEAKY:
            return observation.question in INDEPENDENCE and not observation.holds
        return observation.question is (
            Question.VARIETY if self.conclusion is Conclusion.UNDECIDED else Question.MEMORY
        )


def differs(one: Answer, other: Answer, tolerance: Tolerance) -> bool:
    """Whether two answers are further apart than rounding takes them."""
    if one.said != other.said:
        return not _is_close_text(one.said, other.said, tolerance.words)
    if len(one.numbers) != len(other.numbers):
        return True
    return any(_is_apart(a, b, tolerance.number) for a, b in zip(one.numbers, other.numbers, strict=True))


def first_difference(ones: Sequence[Answer], others: Sequence[Answer], tolerance: Tolerance) -> int | None:
    """Index of the first two answers that differ; None: all are alike. Of the same length."""
    pairs = enumerate(zip(ones, others, strict=True))
    return next((index for index, (one, other) in pairs if differs(one, other, tolerance)), None)


def conclude(observations: Sequence[Observation]) -> Proof:
    """What the experiments amount to."""
    holds = {each.question: all(o.holds for o in observations if o.question is each.question) for each in observations}
    if not all(held for question, held in holds.items() if question in INDEPENDENCE):
        conclusion = Conclusion.LEAKY
    elif any(each.holds for each in observations if each.question is Question.MEMORY):
        conclusion = Conclusion.STATEFUL
    elif not holds.get(Question.VARIETY, True):
        conclusion = Conclusion.UNDECIDED
    else:
        conclusion = Conclusion.STATELESS
    return Proof(conclusion=conclusion, observations=tuple(observations))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which scheduler a model is to have, and who says so."""

    role: str
    """Section of the configuration, as ``live``."""
    model: str
    declared: str
    """By the model itself; empty: it does not say."""
    configured: str
    """By the configuration; empty: as the model declares."""

    @property
    def effective(self) -> str:
        """What it would be served with; empty: nobody says."""
        return self.configured or self.declared


def contradiction(claim: Claim, proof: Proof) -> str | None:
    """Why the model must not be served so, naming the evidence; None: the claim agrees with what was seen."""
    said = _who_says(claim)
    evidence = "; ".join(proof.evidence)
    if proof.conclusion is Conclusion.LEAKY:
        return f"{claim.role}.model: {claim.model} is right under no scheduler ({said}): {evidence}"
    if proof.scheduler is None or proof.scheduler == claim.effective:
        return None
    return (
        f"{claim.role}.scheduler: {said}, but {claim.model} is {proof.conclusion.value} and needs"
        f" the {proof.scheduler} batcher: {evidence}"
    )


def is_excusable(proof: Proof) -> bool:
    """Whether ``allow_wrong_scheduler`` covers a contradiction: it makes no leaky model serve."""
    return proof.conclusion is not Conclusion.LEAKY


def copies_differ(ones: Sequence[Answer], others: Sequence[Answer], tolerance: Tolerance) -> Observation:
    """Whether another copy of the model answers the same as the first."""
    at = first_difference(ones, others, tolerance) if len(ones) == len(others) else 0
    if at is None:
        return Observation(question=Question.INSTANCE, holds=True, sentence="another copy answers alike")
    return Observation(
        question=Question.INSTANCE,
        holds=False,
        sentence=f"two copies differ: {ones[at].shown()} by one, {others[at].shown()} by another",
    )


def _who_says(claim: Claim) -> str:
    if not claim.configured:
        return f"the model declares {claim.declared}" if claim.declared else "nobody says which"
    if claim.declared and claim.declared != claim.configured:
        return f"the configuration says {claim.configured} (the model declares {claim.declared})"
    return f"the configuration says {claim.configured}"


def _is_close_text(one: str, other: str, share: float) -> bool:
    if not share:
        return False
    matcher = difflib.SequenceMatcher(None, one.split(), other.split(), autojunk=False)
    return matcher.ratio() >= 1.0 - share


def _is_apart(a: float, b: float, tolerance: float) -> bool:
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) > tolerance * max(1.0, abs(a), abs(b))
    return not (a == b or (math.isnan(a) and math.isnan(b)))
