"""Models that listen, as subjects of the experiments: pieces of a voice are ticks and a flush, or utterances.

Runs where the model runs (a worker, or the doctor), on a store of its own that is gone afterwards.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from asr_model.contract import OneShotModel, StreamingModel
from asr_model.transcript import FinalOutput, LiveOutput, Word, joined
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchRow, Request, RequestBatch, Samples, SlotSpan
from server.proving.evidence import EXACT, ROUNDED, Answer, Tolerance
from server.proving.experiments import SLOTS, Ask
from server.workers.capacity import speech
from server.workers.instance import OneShotInstance, StreamingInstance
from server.workers.orders import BatchOutcome

SAMPLE_RATE: Final = 16_000
PART_SAMPLES: Final = SAMPLE_RATE
"""Of an utterance that a stateless model is asked for: a second, which holds words and costs little."""
SPEECH_S: Final = 10.0
VOICES_S: Final = (0.0, 4.0, 7.0)
"""Where in the speech each voice begins."""
LOUD: Final = 0.02
"""A sample from which there is sound."""


class ListeningSlots:
    """A StreamingModel with a few slots (``SlotSubject``).

    Args:
        model: The loaded model.
        device: Torch device name of the model.
        n_ticks: Whole ticks of a voice, at least 2; a flush of half a tick comes after them.
    """

    unit = "tick"

    def __init__(self, model: StreamingModel, device: str, n_ticks: int) -> None:
        spec = model.spec
        self._instance = StreamingInstance(model, SLOTS, device, shares_pages=False)
        self._tick, self._lookahead, self._n_ticks = spec.tick_samples, spec.lookahead_samples, n_ticks
        self._n_plans = 0
        n_samples = (n_ticks + 1) * spec.tick_samples + spec.lookahead_samples
        self._voices = tuple(_voice(from_s, n_samples) for from_s in VOICES_S)
        self.tolerance = tolerance_of(spec.precision)

    @property
    def n_pieces(self) -> int:
        """The ticks and the flush."""
        return self._n_ticks + 1

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        """One step that gathers its rows."""
        return self._ask(asks, None)

    def ask_as_they_lie(self, asks: Sequence[Ask]) -> list[Answer]:
        """See ``SlotSubject``."""
        return self._ask(asks, span_of(asks))

    def clear(self, slot: int) -> None:
        """See ``SlotSubject``."""
        self._instance.store.initialise((slot,))

    def keep(self, slot: int) -> object:
        """See ``SlotSubject``."""
        return self._instance.store.snapshot(slot)

    def put(self, slot: int, kept: object) -> None:
        """See ``SlotSubject``."""
        self._instance.store.restore(slot, kept)  # type: ignore[arg-type]  # made by ``keep``

    def is_as_kept(self, slot: int, kept: object) -> bool:
        """See ``SlotSubject``."""
        return same_state(self._instance.store.snapshot(slot), kept)

    def _row(self, ask: Ask) -> tuple[BatchRow, Samples]:
        is_flush = ask.piece == self._n_ticks
        first = ask.piece * self._tick + (self._lookahead if ask.piece else 0)
        until = (ask.piece + 1) * self._tick + self._lookahead
        samples = self._voices[ask.voice][first : first + self._tick // 2 if is_flush else until]
        row = BatchRow(
            slot=SlotIndex(ask.slot),
            generation=0,
            sequence_id=SequenceId(f"probe-{ask.slot}"),
            start=ask.start,
            flush=is_flush,
            end=is_flush,
            first_sample=first,
            n_samples=len(samples),
            ready_at_ns=0,
        )
        return row, samples

    def _ask(self, asks: Sequence[Ask], span: SlotSpan | None) -> list[Answer]:
        self._n_plans += 1
        rows, audio = zip(*(self._row(ask) for ask in asks), strict=True)
        plan = BatchPlan(plan_id=self._n_plans, instance=InstanceIndex(0), rows=rows, audio=audio, span=span)
        return answers(self._instance.run_step(plan), len(rows), _heard)


class ListeningRequests:
    """A OneShotModel (``Subject``): voice 0 is one utterance in two parts, voice 1 is another.

    Args:
        model: The loaded model.
    """

    unit = "request"
    second = "the second part of an utterance"

    def __init__(self, model: OneShotModel) -> None:
        self._instance = OneShotInstance(model, lambda: None)
        self._n_plans = 0
        utterance = _voice(VOICES_S[0], 2 * PART_SAMPLES)
        self._parts = {
            (0, 0): utterance[:PART_SAMPLES],
            (0, 1): utterance[PART_SAMPLES:],
            (1, 0): _voice(VOICES_S[1], PART_SAMPLES * 3 // 4),  # shorter, so that company means padding
        }
        self.tolerance = tolerance_of(model.spec.precision)

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        """One batch."""
        self._n_plans += 1
        requests = tuple(
            Request(request_id=RequestId(index), payload=self._parts[ask.voice, ask.piece])
            for index, ask in enumerate(asks)
        )
        batch = RequestBatch(
            plan_id=self._n_plans, instance=InstanceIndex(0), requests=requests, queued_at_ns=(0,) * len(requests)
        )
        return answers(self._instance.run_batch(batch), len(requests), _heard)


def tolerance_of(precision: str) -> Tolerance:
    """For the answers of a model with that number format."""
    return EXACT if precision in ("float32", "float64") else ROUNDED


def span_of(asks: Sequence[Ask]) -> SlotSpan:
    """The slots of rows in their order, with those between."""
    first, last = asks[0].slot, asks[-1].slot
    return SlotSpan(first=SlotIndex(first), n_slots=last - first + 1)


def same_state(ones: object, others: object) -> bool:
    """Whether two snapshots of a slot hold the same bits; a NaN is equal to itself."""
    assert isinstance(ones, dict), "snapshots of a state store"
    assert isinstance(others, dict), "snapshots of a state store"
    return all(
        one.shape == others[name].shape
        and bool(((one == others[name]) | ((one != one) & (others[name] != others[name]))).all())
        for name, one in ones.items()
    )


def _voice(from_s: float, n_samples: int) -> Samples:
    """float32 [n_samples]: speech from there on, beginning where there is sound, for a tick may be short."""
    first = round(from_s * SAMPLE_RATE)
    audio = speech(seconds=SPEECH_S)
    begin = first + int(np.argmax(np.abs(audio[first:]) >= LOUD))
    return np.resize(np.roll(audio, -begin), n_samples)


def answers(outcome: BatchOutcome, n_rows: int, read: Callable[[object], Answer]) -> list[Answer]:
    """Each row's answer, made of its output by ``read``, or what went wrong."""
    if isinstance(outcome, BatchFailure):
        return [Answer(said=outcome.error, is_error=True)] * n_rows
    return [read(row.output) if row.error is None else Answer(said=row.error, is_error=True) for row in outcome.rows]


def _heard(output: object) -> Answer:
    """Words are compared as they are, probabilities with a tolerance; positions are the service's own."""
    if isinstance(output, LiveOutput):
        ended = output.ended
        said = () if ended is None else ended.words
        mark = "" if ended is None else " ∎ "
        words = (*said, *output.committed, *output.draft)
        text = f"{joined(said)}{mark}{joined((*output.committed, *output.draft))}".strip()
        return Answer(said=text if words else "", numbers=_confidences(words))
    if isinstance(output, FinalOutput):
        return Answer(said=joined(output.words), numbers=_confidences(output.words))
    return Answer(said="" if output is None else str(output))


def _confidences(words: tuple[Word, ...]) -> tuple[float, ...]:
    return tuple(word.confidence for word in words)
