"""The experiments: what is asked of a model in which order, so that its answers show what they depend on. Pure.

The model is behind ``Subject`` or ``SlotSubject``; which tensors or audio stand for a piece is their business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from server.proving.evidence import Answer, Observation, Question, Tolerance, differs, first_difference

SLOTS: Final = 4
"""That a ``SlotSubject`` must have: three for company, one that stands by."""
VOICE, OTHER_VOICE = 0, 1
STAND_BY: Final = 1
COMPANY: Final = {VOICE: (3, 0), OTHER_VOICE: (2, 0), 2: (0, 1)}
"""Voices of a batch: the slot of each, and the step at which it begins. The slot that stands by is among theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One row: a piece of a voice."""

    voice: int
    piece: int
    slot: int = 0
    start: bool = False
    """The slot is initialised before the row; only of a ``SlotSubject``."""


REQUESTS: Final = (Ask(voice=VOICE, piece=0), Ask(voice=VOICE, piece=1), Ask(voice=OTHER_VOICE, piece=0))
"""What a model without slots is asked: an utterance in two parts, and another."""


class Subject(Protocol):
    """A loaded copy of a model."""

    @property
    def tolerance(self) -> Tolerance:
        """For its answers."""

    @property
    def unit(self) -> str:
        """What a piece is called: ``tick``, ``turn``, ``request``."""

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        """The answers to one batch of rows, in their order. Never raises for what the model does."""


class RequestSubject(Subject, Protocol):
    """One without slots; see ``REQUESTS``."""

    @property
    def second(self) -> str:
        """What the second piece of a voice is called."""


class SlotSubject(Subject, Protocol):
    """One with state in slots."""

    @property
    def n_pieces(self) -> int:
        """Pieces of a voice; the last one ends its sequence."""

    def ask_as_they_lie(self, asks: Sequence[Ask]) -> list[Answer]:
        """The same over the slots from the first row's to the last row's, those without a row masked. By slot."""

    def clear(self, slot: int) -> None:
        """Gives the slot its initial values."""

    def keep(self, slot: int) -> object:
        """A copy of the slot's state."""

    def put(self, slot: int, kept: object) -> None:
        """Writes a copy into a slot."""

    def is_as_kept(self, slot: int, kept: object) -> bool:
        """Whether the slot holds it, bit for bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What came of the experiments."""

    observations: tuple[Observation, ...]
    answers: tuple[Answer, ...]
    """To ``reference``: for comparison with another copy of the model."""


def reference(subject: Subject, n_pieces: int) -> list[Answer]:
    """A voice alone from its first piece to its last, in slot 0."""
    return [subject.ask([Ask(voice=VOICE, piece=piece, slot=0, start=piece == 0)])[0] for piece in range(n_pieces)]


def requests_alone(subject: Subject) -> list[Answer]:
    """``REQUESTS``, each in a batch of its own."""
    return [subject.ask([ask])[0] for ask in REQUESTS]


def examine_slots(subject: SlotSubject, *, is_thorough: bool) -> Examined:
    """All that is asked of a model whose answers may depend on its slots.

    Args:
        subject: With ``SLOTS`` slots; their state is used up.
        is_thorough: Then company is asked for in slots as they lie too.
    """
    n = subject.n_pieces
    middle = n // 2
    head = reference(subject, middle)
    kept = subject.keep(0)
    rest = range(middle, n)
    alone = head + [subject.ask([Ask(voice=VOICE, piece=piece, slot=0)])[0] for piece in rest]
    if all(answer.is_error for answer in alone):
        return _nothing_but_errors(alone)
    subject.put(STAND_BY, kept)
    observations: list[Observation] = []
    if is_thorough:
        observations.append(_among_others(subject, alone, as_they_lie=True)[0])
    company, others = _among_others(subject, alone, as_they_lie=False)
    observations += [company, _bystander(subject.is_as_kept(STAND_BY, kept), subject.unit)]
    used = COMPANY[OTHER_VOICE][0]
    again = [subject.ask([Ask(voice=VOICE, piece=p, slot=used, start=p == 0)])[0] for p in range(n)]
    observations.append(_reset(subject, alone, again))
    subject.clear(0)
    unaware = [subject.ask([Ask(voice=VOICE, piece=piece, slot=0)])[0] for piece in rest]
    observations.append(_memory(subject, alone[middle:], unaware, middle))
    subject.put(STAND_BY, kept)
    moved = [subject.ask([Ask(voice=VOICE, piece=piece, slot=STAND_BY)])[0] for piece in rest]
    observations.append(_place(subject, alone[middle:], moved))
    observations.append(_variety(subject, alone[: len(others)], others))
    return Examined(observations=tuple(observations), answers=tuple(alone))


def examine_requests(subject: RequestSubject, *, is_thorough: bool) -> Examined:
    """All that is asked of a model that should keep nothing. Voice 0 has two pieces, voice 1 has one."""
    alone = requests_alone(subject)
    if all(answer.is_error for answer in alone):
        return _nothing_but_errors(alone)
    later = [subject.ask([REQUESTS[index]])[0] for index in (1, 0)]
    observations = [
        _split(subject, alone[1], later[0]),
        _twice(subject, alone[0], later[1]),
    ]
    if not any(each.holds for each in observations):  # else company would show the same memory once more
        orders = [(1, 2, 0), (0, 1, 2), (2, 0, 1)] if is_thorough else [(1, 2, 0)]
        for order in orders:
            answers = subject.ask([REQUESTS[index] for index in order])
            observations.append(_company(subject, [alone[index] for index in order], answers))
    observations.append(_variety(subject, alone[:1], alone[2:]))
    return Examined(observations=tuple(observations), answers=tuple(alone))


def _nothing_but_errors(alone: Sequence[Answer]) -> Examined:
    seen = f"everything it is asked fails: {alone[0].shown()}"
    return Examined(
        observations=(Observation(question=Question.VARIETY, holds=False, sentence=seen),), answers=tuple(alone)
    )


def _among_others(
    subject: SlotSubject, alone: Sequence[Answer], *, as_they_lie: bool
) -> tuple[Observation, list[Answer]]:
    """The voice in company of another, and of a third that begins later: in another order each time, or by slot.

    Returns:
        What was seen, and the other voice's answers.
    """
    heard: dict[int, list[Answer]] = {voice: [] for voice in COMPANY}
    for step in range(subject.n_pieces):
        asks = [
            Ask(voice=voice, piece=step - late, slot=slot, start=step == late)
            for voice, (slot, late) in COMPANY.items()
            if step >= late
        ]
        turn = step % len(asks)
        asks = sorted(asks, key=lambda ask: ask.slot) if as_they_lie else asks[turn:] + asks[:turn]
        answers = subject.ask_as_they_lie(asks) if as_they_lie else subject.ask(asks)
        for ask, answer in zip(asks, answers, strict=True):
            heard[ask.voice].append(answer)
    return _company(subject, alone, heard[VOICE]), heard[OTHER_VOICE]


def _company(subject: Subject, alone: Sequence[Answer], among: Sequence[Answer]) -> Observation:
    at = first_difference(alone, among, subject.tolerance)
    seen = (
        "in a batch with others, in another order: the same answers"
        if at is None
        else f"a {subject.unit} was answered {alone[at].shown()} alone, {among[at].shown()} in a batch with others:"
        " rows touch each other"
    )
    return Observation(question=Question.COMPANY, holds=at is None, sentence=seen)


def _bystander(is_as_kept: bool, unit: str) -> Observation:
    seen = (
        "slots without a row stay as they are, bit for bit"
        if is_as_kept
        else (f"a {unit} changed the state of a slot that was not its own")
    )
    return Observation(question=Question.BYSTANDER, holds=is_as_kept, sentence=seen)


def _reset(subject: Subject, alone: Sequence[Answer], again: Sequence[Answer]) -> Observation:
    at = first_difference(alone, again, subject.tolerance)
    seen = (
        "the same sequence again, in a slot that another had used: the same answers"
        if at is None
        else f"the same sequence again, in a slot that another had used: {subject.unit} {at + 1} was answered"
        f" {alone[at].shown()} at first, {again[at].shown()} then: START does not forget"
    )
    return Observation(question=Question.RESET, holds=at is None, sentence=seen)


def _memory(subject: Subject, aware: Sequence[Answer], unaware: Sequence[Answer], middle: int) -> Observation:
    at = first_difference(aware, unaware, subject.tolerance)
    unit = subject.unit
    seen = (
        f"{unit}s {middle + 1} to {middle + len(aware)} of a sequence are answered alike with and without those before"
        if at is None
        else f"{unit} {middle + at + 1} of a sequence was answered {aware[at].shown()} after the {unit}s before it,"
        f" {unaware[at].shown()} where those had never been"
    )
    return Observation(question=Question.MEMORY, holds=at is not None, sentence=seen)


def _place(subject: Subject, stayed: Sequence[Answer], moved: Sequence[Answer]) -> Observation:
    at = first_difference(stayed, moved, subject.tolerance)
    seen = (
        "moved to another slot half-way, a sequence goes on alike"
        if at is None
        else f"a sequence moved to another slot half-way was answered {stayed[at].shown()} where it was,"
        f" {moved[at].shown()} there: something is remembered outside of the slots"
    )
    return Observation(question=Question.PLACE, holds=at is None, sentence=seen)


def _split(subject: RequestSubject, after_first: Answer, after_other: Answer) -> Observation:
    is_apart = differs(after_first, after_other, subject.tolerance)
    seen = (
        f"{subject.second} was answered {after_first.shown()} after the first,"
        f" {after_other.shown()} after something else"
        if is_apart
        else f"{subject.second} is answered {after_first.shown()}, whatever was asked before"
    )
    return Observation(question=Question.MEMORY, holds=is_apart, sentence=seen)


def _twice(subject: Subject, once: Answer, again: Answer) -> Observation:
    is_apart = differs(once, again, subject.tolerance)
    seen = (
        f"the same {subject.unit} twice was answered {once.shown()}, then {again.shown()}"
        if is_apart
        else f"the same {subject.unit} twice is answered {once.shown()} both times"
    )
    return Observation(question=Question.MEMORY, holds=is_apart, sentence=seen)


def _variety(subject: Subject, ones: Sequence[Answer], others: Sequence[Answer]) -> Observation:
    at = first_difference(ones, others, subject.tolerance)
    seen = (
        f"everything is answered {ones[0].shown() if ones else 'nothing'}, so that nothing can be told"
        if at is None
        else "other input is answered otherwise"
    )
    return Observation(question=Question.VARIETY, holds=at is not None, sentence=seen)
