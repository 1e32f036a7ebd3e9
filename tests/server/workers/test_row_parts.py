"""A row of several ticks in parts: the audio of each tick, in order, once."""

import numpy as np
import pytest

from asr_model.contract import StepRow
from server.ids import SequenceId, SlotIndex
from server.plan import BatchRow, Samples, SequenceOptions
from server.workers.row_parts import row_parts

TICK, LOOKAHEAD = 10, 3


def row_of(first_sample: int, n_samples: int, n_ticks: int, *, flush: bool = False) -> tuple[BatchRow, Samples]:
    row = BatchRow(
        slot=SlotIndex(4),
        generation=1,
        sequence_id=SequenceId("s"),
        start=first_sample == 0,
        flush=flush,
        end=flush,
        first_sample=first_sample,
        n_samples=n_samples,
        ready_at_ns=0,
        options=SequenceOptions(endpoint_silence_ms=300) if first_sample == 0 else None,
        n_ticks=n_ticks,
    )
    return row, np.arange(first_sample, first_sample + n_samples, dtype=np.float32)


def parts_of(first_sample: int, n_samples: int, n_ticks: int, max_ticks: int) -> tuple[StepRow, ...]:
    row, audio = row_of(first_sample, n_samples, n_ticks)
    return row_parts(row, audio, tick_samples=TICK, lookahead_samples=LOOKAHEAD, max_ticks=max_ticks)


@pytest.mark.parametrize(
    ("first_sample", "n_samples", "n_ticks", "max_ticks", "ends", "ticks"),
    [
        (0, 13, 1, 1, [13], [1]),
        (0, 33, 3, 1, [13, 23, 33], [1, 1, 1]),
        (13, 30, 3, 1, [23, 33, 43], [1, 1, 1]),
        (13, 30, 3, 3, [43], [3]),
        (13, 30, 3, 9, [43], [3]),
        (0, 53, 5, 2, [23, 43, 53], [2, 2, 1]),
        (43, 20, 2, 1, [53, 63], [1, 1]),
    ],
)
def test_ticks_end_where_they_are_complete(
    first_sample: int, n_samples: int, n_ticks: int, max_ticks: int, ends: list[int], ticks: list[int]
) -> None:
    parts = parts_of(first_sample, n_samples, n_ticks, max_ticks)
    assert [part.first_sample + len(part.audio) for part in parts] == ends
    assert [part.n_ticks for part in parts] == ticks
    assert [part.first_sample for part in parts] == [first_sample, *ends[:-1]]
    heard = np.concatenate([part.audio for part in parts])
    assert heard.tolist() == list(range(first_sample, first_sample + n_samples))


def test_start_and_what_was_asked_come_with_the_first_part_alone() -> None:
    parts = parts_of(0, 33, 3, 1)
    assert [part.start for part in parts] == [True, False, False]
    assert [part.endpoint_silence_ms for part in parts] == [300, None, None]
    assert {(part.slot, part.sequence_id, part.flush, part.end) for part in parts} == {(4, "s", False, False)}


def test_a_flush_is_one_part_whatever_its_length() -> None:
    row, audio = row_of(13, 7, 1, flush=True)
    (part,) = row_parts(row, audio, tick_samples=TICK, lookahead_samples=LOOKAHEAD, max_ticks=1)
    assert (part.flush, part.end, len(part.audio)) == (True, True, 7)


def test_ticks_that_do_not_fit_the_audio_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="2 ticks from sample 13 on are 20 samples, not 21"):
        parts_of(13, 21, 2, 1)
