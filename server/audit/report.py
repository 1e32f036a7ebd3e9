"""What an audit's difference looks like in the log: both texts around it, and the batches that made it. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from asr_model.transcript import Word, joined
from server.audit.comparison import Verdict
from server.audit.record import Record, RowTrace

SAMPLE_RATE: Final = 16_000
WORDS_BEFORE, WORDS_AFTER = 4, 12
"""Shown around the first difference."""
LEAD_S, LAG_S = 2.0, 2.0
"""Rows whose audio lies so near to the first word that differs are concerned."""
MAX_ROWS: Final = 12
MAX_MOVES: Final = 6


def difference_text(record: Record, alone: Record, verdict: Verdict, *, shows_words: bool) -> str:
    """One line about a difference.

    Args:
        record: The sequence.
        alone: Its replay.
        verdict: With a difference.
        shows_words: Whether it may say what was said.
    """
    assert verdict.at is not None, "there is a difference to tell of"
    at_s = _position_s(verdict.told, verdict.alone, verdict.at)
    margin = "not known" if verdict.margin is None else f"{verdict.margin:.2g}"
    told, by_itself = (_heard(words, verdict.at, shows_words) for words in (verdict.told, verdict.alone))
    return (
        f"sequence {record.sequence_id} heard {told}, alone {by_itself}:"
        f" word {verdict.at + 1}, near {at_s:.1f} s, margin {margin};"
        f" it ran on {_instances(record)}{_moves(record.rows)}, alone on {_instances(alone)};"
        f" batches there: {'; '.join(_row(row) for row in concerned(record.rows, at_s)) or 'none'}"
    )


def concerned(rows: Sequence[RowTrace], at_s: float) -> list[RowTrace]:
    """The rows whose audio is near that place, in order; the last of them if there are too many."""
    first, end = (at_s - LEAD_S) * SAMPLE_RATE, (at_s + LAG_S) * SAMPLE_RATE
    return [row for row in rows if row.end_sample >= first and row.first_sample <= end][-MAX_ROWS:]


def _position_s(told: Sequence[Word], alone: Sequence[Word], at: int) -> float:
    """Where the first word that differs begins, on whichever side there is one; else where the last word ends."""
    starts = [words[at].start_s for words in (told, alone) if len(words) > at]
    return min(starts)


def _heard(words: Sequence[Word], at: int, shows_words: bool) -> str:
    if not shows_words:
        return f"{len(words)} {'word' if len(words) == 1 else 'words'}"
    shown = tuple(words[max(0, at - WORDS_BEFORE) : at + WORDS_AFTER])
    before, after = at > WORDS_BEFORE, len(words) > at + WORDS_AFTER
    return f"“{'… ' if before else ''}{joined(shown)}{' …' if after else ''}”"


def _row(row: RowTrace) -> str:
    rows = "row" if row.batch_size == 1 else "rows"
    return (
        f"{row.first_sample / SAMPLE_RATE:.2f} s plan {row.plan_id} instance {row.instance} slot {row.slot}"
        f" of {row.batch_size} {rows}"
    )


def _moves(rows: Sequence[RowTrace]) -> str:
    """Where a row ran on another instance than the one before it: for a sequence that is pinned, nowhere."""
    moves = [(before, row) for before, row in pairwise(rows) if before.instance != row.instance]
    if not moves:
        return ""
    shown = [
        f"{before.instance}→{row.instance} at {row.first_sample / SAMPLE_RATE:.2f} s (plan {row.plan_id})"
        for before, row in moves[:MAX_MOVES]
    ]
    count = "1 move" if len(moves) == 1 else f"{len(moves)} moves"
    return f" ({count}: {', '.join(shown)}{', …' if len(moves) > MAX_MOVES else ''})"


def _instances(record: Record) -> str:
    numbers = sorted({row.instance for row in record.rows})
    if len(numbers) == 1:
        return f"instance {numbers[0]}"
    return f"instances {', '.join(map(str, numbers))}" if numbers else "no instance"
