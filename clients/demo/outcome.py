"""What the demonstration finds: word error rates by length, load and scheduler, and whether it shows what it should."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from clients.demo.playing import Played
from clients.demo.tick_story import n_wrong, passages
from clients.demo.utterances import LengthClass
from clients.word_error_rate import WordErrors, word_errors

LEAST_GAP_POINTS: Final = 10.0
"""WER of the longest class at the highest load that the dynamic batcher must lie above the sequence batcher."""


class SchedulerName(Enum):
    """Which batcher the live model had."""

    DYNAMIC = "dynamic"
    SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """One figure of the table."""

    scheduler: SchedulerName
    clients: int
    length: LengthClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All utterances of a class at one load under one scheduler."""

    errors: WordErrors = field(default_factory=WordErrors)
    utterances: int = 0
    ticks: int = 0
    """Answered ticks, flushes included."""
    wrong_ticks: int = 0
    """Those that met a state that was not theirs."""

    def plus(self, played: Played) -> "Cell":
        """With one more utterance."""
        return Cell(
            errors=self.errors + word_errors(played.utterance.text, played.text),
            utterances=self.utterances + 1,
            ticks=self.ticks + len(played.ticks),
            wrong_ticks=self.wrong_ticks + n_wrong(played.ticks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One utterance under both schedulers at the same load."""

    dynamic: Played
    sequence: Played
    clients: int

    @property
    def added_errors(self) -> int:
        """Word errors that the dynamic batcher added."""
        errors = (word_errors(each.utterance.text, each.text).distance for each in (self.dynamic, self.sequence))
        wrong, right = errors
        return wrong - right


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An utterance under the sequence batcher whose text is not the one that it has alone."""

    name: str
    clients: int
    alone: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the demonstration shows what it should."""

    gap_points: float
    """WER of the longest class at the highest load: dynamic minus sequence, in points."""
    differences: tuple[Difference, ...]
    failures: tuple[str, ...]
    """Sequences that broke off, under either scheduler."""

    @property
    def holds(self) -> bool:
        """The dynamic batcher is visibly wrong, the sequence batcher is word for word what each is alone."""
        return self.gap_points >= LEAST_GAP_POINTS and not self.differences and not self.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was played."""

    played: Mapping[tuple[SchedulerName, int], Sequence[Played]]
    """By scheduler and number of clients."""

    @property
    def loads(self) -> list[int]:
        """Numbers of clients, ascending."""
        return sorted({clients for _, clients in self.played})

    @property
    def lengths(self) -> list[LengthClass]:
        """Classes that have utterances."""
        found = {each.utterance.length for played in self.played.values() for each in played}
        return [length for length in LengthClass if length in found]

    @property
    def schedulers(self) -> list[SchedulerName]:
        """Those that were run, in the order of the story."""
        found = {scheduler for scheduler, _ in self.played}
        return [scheduler for scheduler in SchedulerName if scheduler in found]

    def cell(self, key: CellKey) -> Cell:
        """One figure; empty where nothing was played."""
        cell = Cell()
        for played in self.played.get((key.scheduler, key.clients), ()):
            if played.utterance.length is key.length:
                cell = cell.plus(played)
        return cell

    def alone(self) -> Mapping[str, str]:
        """The text of each utterance where one client had the service, under the sequence batcher, to itself."""
        return {each.utterance.name: each.text for each in self.played.get((SchedulerName.SEQUENCE, 1), ())}

    @property
    def longest(self) -> LengthClass:
        """The longest class that has utterances."""
        return self.lengths[-1]

    def verdict(self) -> Verdict:
        """After both schedulers were run at all loads, one client among them."""
        most = max(self.loads)
        wrong, right = (
            self.cell(CellKey(scheduler=scheduler, clients=most, length=self.longest)).errors.percent
            for scheduler in (SchedulerName.DYNAMIC, SchedulerName.SEQUENCE)
        )
        failures = [
            f"{each.utterance.name}, {scheduler.value}, {clients} clients: {each.failure}"
            for (scheduler, clients), played in self.played.items()
            for each in played
            if each.failure
        ]
        return Verdict(gap_points=wrong - right, differences=tuple(self._differences()), failures=tuple(failures))

    def cases(self) -> list[Case]:
        """For a closer look, of the longest class under the dynamic batcher: the first sign, which is the utterance
        that moved least of those that came out worse; and the worst of the highest load.
        """
        wrong = [
            Case(dynamic=each, sequence=right, clients=clients)
            for (scheduler, clients), played in self.played.items()
            for each in played
            if scheduler is SchedulerName.DYNAMIC and each.utterance.length is self.longest
            if (right := self._under_sequence(each, clients)) is not None
        ]
        worse = [case for case in wrong if case.added_errors > 0]
        found = []
        if worse:
            found.append(min(worse, key=lambda case: (len(passages(case.dynamic.ticks)), -case.added_errors)))
            at_most = [case for case in worse if case.clients == max(self.loads)]
            found += sorted(at_most, key=lambda case: -case.added_errors)[:1]
        return list(dict.fromkeys(found))

    def _under_sequence(self, played: Played, clients: int) -> Played | None:
        same = (each for each in self.played.get((SchedulerName.SEQUENCE, clients), ()))
        return next((each for each in same if each.utterance.name == played.utterance.name), None)

    def _differences(self) -> list[Difference]:
        alone = self.alone()
        return [
            Difference(
                name=each.utterance.name, clients=clients, alone=alone.get(each.utterance.name, ""), text=each.text
            )
            for (scheduler, clients), played in self.played.items()
            for each in played
            if scheduler is SchedulerName.SEQUENCE and each.text != alone.get(each.utterance.name)
        ]
