"""A timeline as text, played on a bench: each line is done, and all that comes of it is compared."""

from collections.abc import Callable, Mapping
from difflib import ndiff
from typing import Protocol, TypeVar


class PlayedBench(Protocol):
    """What a timeline is played on."""

    now_ns: int

    def check(self) -> None:
        """Whether all is as it must be, after every line."""


B = TypeVar("B", bound=PlayedBench)


def play(bench: B, verbs: Mapping[str, Callable[[B, list[str]], str]], timeline: str) -> None:
    """One line is ``<time in ns> <verb> <arguments> -> <outcome>``; ``-> ok`` and ``-> -`` are left out. Blank lines
    and lines of comment (``# …``) are ignored. A failure shows the whole timeline.
    """
    lines = [" ".join(line.split()) for line in timeline.splitlines()]
    expected = [line for line in lines if line and not line.startswith("# ")]
    happened: list[str] = []
    for line in expected:
        try:
            happened.append(_done(bench, verbs, line.partition(" -> ")[0]))
        except Exception as error:
            error.add_note("\n".join(("timeline:", *happened, f"{line}    <- here")))
            raise
    assert happened == expected, "\n".join(("timeline (- expected, + happened):", *ndiff(expected, happened)))


def _done(bench: B, verbs: Mapping[str, Callable[[B, list[str]], str]], line: str) -> str:
    time, verb, *arguments = line.split()
    bench.now_ns = int(time)
    outcome = verbs[verb](bench, arguments)
    bench.check()
    return line if outcome in ("ok", "-") else f"{line} -> {outcome}"
