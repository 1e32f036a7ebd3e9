"""Words with times as subtitles. Pure.

The rules are those of broadcasters: at most two lines of 42 characters, at most seven seconds and, where that lets
none overlap, at least one; cues and lines end where sentences, clauses or pauses do. Where to break is the cheapest
of all ways, found by dynamic programming over the words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

LINE_CHARS = 42
"""Longest line. A single word that is longer stands alone on its line, whole."""
LINES = 2
"""Most lines of a cue; the search below knows of no third."""
LONGEST_MS = 7_000
SHORTEST_MS = 1_000
CHARS_PER_S = 20
"""Reading speed: a cue stays for as long as its text takes to read, if nothing follows."""
PAUSE_MS = 300
"""A gap between two words that is heard as a pause."""
LONG_PAUSE_MS = 1_500
"""A gap over which no cue stays."""
SENTENCE_ENDS, CLAUSE_ENDS = ".?!…", ",;:—–"
LEANING = frozenset(
    ("a", "an", "the", "my", "your", "and", "but", "or", "that", "which", "who", "if", "when")
) | frozenset(("of", "to", "in", "on", "at", "by", "for", "from", "with", "as"))
"""English words that belong to what follows them."""
CLOSERS = "\"'”’)]»"
"""What may follow the mark that ends a sentence."""

CUE_COST = 20
"""Of a cue as such: few are better than many."""
SENTENCE_COST, CLAUSE_COST, PAUSE_COST, ANYWHERE_COST, LEANING_COST = 0, 12, 12, 40, 60
"""Of a break after a word, by what is there."""
INNER_SENTENCE_COST = 10
"""Of a sentence that ends within a cue."""
SHORT_COST = 25
"""Of a cue whose words last less than the shortest time."""
LINE_BREAK_COST = 6
"""Of a second line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWord:
    """A word as it is written, and when it is said."""

    text: str
    """Without white space."""
    start_ms: int
    end_ms: int


def timed(text: str, start_s: float, end_s: float) -> list[TimedWord]:
    """A word as a model wrote it; one with white space in it is several, said at the same time."""
    return [TimedWord(text=part, start_ms=round(start_s * 1000), end_ms=round(end_s * 1000)) for part in text.split()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """What is shown from one time to another."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    """One or two."""


def subtitles(words: Sequence[TimedWord]) -> list[Cue]:
    """Cues that hold every word once, in order; none overlaps the next, each lasts at least a millisecond.

    Args:
        words: In the order in which they are said; times that run back are taken for the latest before them.
    """
    spoken = _in_order(words)
    groups = [_Group(words=spoken[first:end]) for first, end in pairwise([0, *_breaks(spoken)])]
    return _timed(groups)


@dataclass(frozen=True)
class _Group:
    """Words that may become a cue."""

    words: Sequence[TimedWord]

    @property
    def start_ms(self) -> int:
        return self.words[0].start_ms

    @property
    def end_ms(self) -> int:
        """Of the last word; a single word may be longer than a cue."""
        return min(self.words[-1].end_ms, self.start_ms + LONGEST_MS)

    @cached_property
    def lines(self) -> tuple[str, ...] | None:
        """The text in one or two lines, the break at the best place; None if it takes more."""
        texts = [word.text for word in self.words]
        if _fits(texts):
            return (" ".join(texts),)
        ways = [cut for cut in range(1, len(texts)) if _fits(texts[:cut]) and _fits(texts[cut:])]
        if not ways:
            return None

        def cost(cut: int) -> int:
            unevenness = abs(len(" ".join(texts[:cut])) - len(" ".join(texts[cut:])))
            return _break_cost(self.words, cut) + unevenness

        best = min(ways, key=cost)
        return " ".join(texts[:best]), " ".join(texts[best:])

    def cost(self) -> int | None:
        """What the cue costs, its breaks aside; None if there can be no such cue."""
        if len(self.words) > 1 and self.words[-1].end_ms - self.start_ms > LONGEST_MS:
            return None
        if self.lines is None or any(_gap_ms(pair) > LONG_PAUSE_MS for pair in pairwise(self.words)):
            return None
        inner = sum(_ends_with(word.text, SENTENCE_ENDS) for word in self.words[:-1])
        short = self.end_ms - self.start_ms < SHORTEST_MS
        return CUE_COST + INNER_SENTENCE_COST * inner + SHORT_COST * short + LINE_BREAK_COST * (len(self.lines) - 1)


def _in_order(words: Sequence[TimedWord]) -> list[TimedWord]:
    """The words with starts that never run back and ends that are not before their starts."""
    ordered: list[TimedWord] = []
    latest_ms = 0
    for word in words:
        latest_ms = max(latest_ms, word.start_ms)
        ordered.append(TimedWord(text=word.text, start_ms=latest_ms, end_ms=max(latest_ms, word.end_ms)))
    return ordered


def _breaks(words: Sequence[TimedWord]) -> list[int]:
    """Where cues end, as numbers of words, cheapest of all ways."""
    costs: list[int] = [0]
    previous: list[int] = [0]
    for end in range(1, len(words) + 1):
        break_cost = 0 if end == len(words) else _break_cost(words, end)
        ways = []
        for first in range(end - 1, max(-1, end - 1 - LINES * LINE_CHARS), -1):
            cost = _Group(words=words[first:end]).cost()
            if cost is None:
                break  # more words make it no shorter
            ways.append((costs[first] + cost + break_cost, first))
        cheapest, at = min(ways)
        costs.append(cheapest)
        previous.append(at)
    ends: list[int] = []
    end = len(words)
    while end:
        ends.append(end)
        end = previous[end]
    return ends[::-1]


def _timed(groups: Sequence[_Group]) -> list[Cue]:
    """Cues shown while their words are said, and longer or sooner where that is needed and nothing is in the way."""
    cues: list[Cue] = []
    free_ms = 0
    for index, group in enumerate(groups):
        assert group.lines is not None
        next_ms = groups[index + 1].start_ms if index + 1 < len(groups) else None
        start_ms = max(group.start_ms, free_ms)
        reading_ms = sum(map(len, group.lines)) * 1000 // CHARS_PER_S
        wanted_ms = start_ms + min(max(SHORTEST_MS, reading_ms), LONGEST_MS)
        end_ms = max(group.end_ms, wanted_ms if next_ms is None else min(wanted_ms, next_ms), start_ms + 1)
        if next_ms is not None:
            end_ms = max(min(end_ms, next_ms), start_ms + 1)
        start_ms = min(start_ms, max(free_ms, end_ms - SHORTEST_MS))
        cues.append(Cue(start_ms=start_ms, end_ms=end_ms, lines=group.lines))
        free_ms = end_ms
    return cues


def _break_cost(words: Sequence[TimedWord], at: int) -> int:
    """Of a break before word ``at``."""
    text = words[at - 1].text
    if _ends_with(text, SENTENCE_ENDS):
        return SENTENCE_COST
    if _ends_with(text, CLAUSE_ENDS):
        return CLAUSE_COST
    if _gap_ms((words[at - 1], words[at])) >= PAUSE_MS:
        return PAUSE_COST
    return LEANING_COST if text.lower() in LEANING else ANYWHERE_COST


def _gap_ms(pair: tuple[TimedWord, TimedWord]) -> int:
    return pair[1].start_ms - pair[0].end_ms


def _ends_with(text: str, marks: str) -> bool:
    return text.rstrip(CLOSERS).endswith(tuple(marks))


def _fits(texts: Sequence[str]) -> bool:
    return len(texts) == 1 or len(" ".join(texts)) <= LINE_CHARS
