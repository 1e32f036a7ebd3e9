"""A row of several ticks, as a model takes it: whole, or in parts of as many ticks as go through it at once. Pure."""

from asr_model.contract import StepRow
from server.plan import BatchRow, Samples


def row_parts(
    row: BatchRow, audio: Samples, *, tick_samples: int, lookahead_samples: int, max_ticks: int
) -> tuple[StepRow, ...]:
    """The row in parts that the model takes one after the other.

    Args:
        row: of the plan.
        audio: float32 [n_samples], all of it.
        tick_samples: from one tick to the next.
        lookahead_samples: by how much tick k is complete later than ``tick_samples * k``.
        max_ticks: that go through the model at once, at least 1.
    """
    if row.n_ticks <= max_ticks:
        return (_part(row, audio, 0, len(audio), row.n_ticks, is_first=True),)
    ticks_before = (row.first_sample - lookahead_samples) // tick_samples if row.first_sample else 0
    parts = []
    first, done = 0, 0
    while done < row.n_ticks:
        n_ticks = min(max_ticks, row.n_ticks - done)
        done += n_ticks
        last = (ticks_before + done) * tick_samples + lookahead_samples - row.first_sample
        parts.append(_part(row, audio, first, last, n_ticks, is_first=first == 0))
        first = last
    assert first == len(audio), (
        f"{row.n_ticks} ticks from sample {row.first_sample} on are {first} samples, not {len(audio)}"
    )
    return tuple(parts)


def _part(row: BatchRow, audio: Samples, first: int, last: int, n_ticks: int, *, is_first: bool) -> StepRow:
    options = row.options if is_first else None
    return StepRow(
        slot=row.slot,
        start=row.start and is_first,
        flush=row.flush,
        end=row.end,
        first_sample=row.first_sample + first,
        audio=audio[first:last],
        endpoint_silence_ms=options.endpoint_silence_ms if options is not None else None,
        n_ticks=n_ticks,
        sequence_id=row.sequence_id,
    )
