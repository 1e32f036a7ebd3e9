"""Where an utterance's ticks ran, and what each found there: the explanation of every reset. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby


class Found(Enum):
    """What a tick found on the instance that it came to."""

    START = "start"
    """Nothing, and rightly: it is the first."""
    FOLLOWS = "follows"
    """The state after the tick before it."""
    FRESH = "fresh"
    """Nothing, although ticks came before it: the instance had never heard of the sequence."""
    STALE = "stale"
    """A state that lacks what was said while the sequence was elsewhere."""


WRONG = frozenset({Found.FRESH, Found.STALE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldTick:
    """A tick, or the flush at the end, as the client was answered."""

    tick: int
    """From 1; the flush counts on."""
    instance: int
    batch_size: int
    text: str
    """All that the client has been told of the utterance by now."""
    is_flush: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a tick found."""

    told: ToldTick
    found: Found
    heard_until: int = 0
    """The last tick before it that its instance had heard; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Neighbouring ticks on one instance."""

    first: Finding
    last: Finding

    @property
    def instance(self) -> int:
        """Where they ran."""
        return self.first.told.instance

    @property
    def text(self) -> str:
        """What the client saw at its end."""
        return self.last.told.text

    @property
    def ticks(self) -> str:
        """In words."""
        first, last = self.first.told, self.last.told
        if first.is_flush:
            return "end"
        until = last.tick - last.is_flush
        ticks = f"{first.tick}" if until == first.tick else f"{first.tick}–{until}"
        return f"{ticks}, end" if last.is_flush else ticks

    @property
    def explanation(self) -> str:
        """Why its text is what it is."""
        tick, heard = self.first.told.tick, self.first.heard_until
        match self.first.found:
            case Found.START:
                return "the sequence starts here"
            case Found.FRESH:
                return f"reset: this instance never heard {_span(1, tick - 1)}, it starts from nothing"
            case Found.STALE:
                return f"stale: this instance last heard tick {heard}, {_span(heard + 1, tick - 1)} went elsewhere"
            case Found.FOLLOWS:
                return "goes on"


def _span(first: int, last: int) -> str:
    return f"tick {first}" if first == last else f"ticks {first}–{last}"


def findings(ticks: Sequence[ToldTick]) -> list[Finding]:
    """What each tick found, given that an instance remembers the sequences it has heard."""
    heard_until: dict[int, int] = {}
    found: list[Finding] = []
    for index, told in enumerate(ticks):
        heard = heard_until.get(told.instance, 0)
        if index == 0:
            what = Found.START
        elif heard == 0:
            what = Found.FRESH
        else:
            what = Found.FOLLOWS if heard == told.tick - 1 else Found.STALE
        found.append(Finding(told=told, found=what, heard_until=heard))
        heard_until[told.instance] = told.tick
    return found


def passages(ticks: Sequence[ToldTick]) -> list[Passage]:
    """The timeline in pieces of one instance each."""
    pieces: list[Passage] = []
    for _, group in groupby(findings(ticks), key=lambda finding: finding.told.instance):
        run = list(group)
        pieces.append(Passage(first=run[0], last=run[-1]))
    return pieces


def n_wrong(ticks: Sequence[ToldTick]) -> int:
    """Ticks that found a state that is not the one after the tick before them."""
    return sum(finding.found in WRONG for finding in findings(ticks))
