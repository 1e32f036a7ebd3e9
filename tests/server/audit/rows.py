"""Effects of rows, made by hand."""

import numpy as np

from asr_model.transcript import EndedUtterance, LiveOutput, UtteranceEnd, Word
from server.effects import RowCompleted
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchRow, Samples

S = SequenceId("s")


def word(text: str, margin: float | None = 1.0, start_s: float = 0.0) -> Word:
    return Word(text=text, start_s=start_s, end_s=start_s + 0.2, confidence=1.0, margin=margin)


def words(text: str, margin: float | None = 1.0) -> tuple[Word, ...]:
    return tuple(word(each, margin, start_s=float(at)) for at, each in enumerate(text.split()))


def row(
    first: int,
    end: int,
    said: str | None = None,
    *,
    flush: bool = False,
    is_end: bool = False,
    sequence_id: SequenceId = S,
    instance: int = 0,
    plan_id: int = 0,
    margin: float | None = 1.0,
) -> RowCompleted:
    """A row over those samples; with ``said`` an utterance ended in it."""
    ended = None
    if said is not None:
        cause = UtteranceEnd.END if is_end else UtteranceEnd.FINALIZE if flush else UtteranceEnd.ENDPOINT
        ended = EndedUtterance(cause=cause, first_sample=0, end_sample=end, words=words(said, margin))
    output = LiveOutput(encoded_samples=end, committed=(), draft=(), ended=ended, keep_from_sample=end, is_speech=True)
    return RowCompleted(
        row=BatchRow(
            slot=SlotIndex(2),
            generation=1,
            sequence_id=sequence_id,
            start=first == 0,
            flush=flush or is_end,
            end=is_end,
            first_sample=first,
            n_samples=end - first,
            ready_at_ns=0,
        ),
        instance=InstanceIndex(instance),
        output=output,
        batch_size=3,
        queue_ns=0,
        step_ns=0,
        plan_id=plan_id,
    )


def samples(n_samples: int, first: int = 0) -> Samples:
    """Samples that tell their position."""
    return np.arange(first, first + n_samples, dtype=np.float32)
