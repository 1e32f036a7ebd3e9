"""Models that take tensors, as subjects of the experiments: pieces of a voice are turns, or requests.

What is asked is made up from the declared inputs: small numbers and short sentences, so that most models have something
to say to them. Nobody knows what a model wants to hear: one that takes none of it is left undecided.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from asr_model.contract import ModelSpec, TensorModel, TensorStreamingModel
from asr_model.tensor_check import NUMPY_TYPES
from asr_model.tensor_spec import TensorSpec
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import BatchPlan, BatchRow, Request, RequestBatch, SlotSpan, Tensors
from server.proving.audio_probe import answers, same_state, span_of, tolerance_of
from server.proving.evidence import Answer
from server.proving.experiments import SLOTS, Ask
from server.workers.tensor_instance import TensorInstance, TensorStreamingInstance

SENTENCES: Final = (
    b"a warm and funny film",
    b"it never ends",
    b"what a fine day this is",
    b"the plot is a mess and the jokes are stale",
    b"good",
    b"not bad at all",
)
LENGTH: Final = 4
"""Of axes of any length; ragged inputs vary around it."""


class TurnSlots:
    """A TensorStreamingModel with a few slots (``SlotSubject``).

    Args:
        model: The loaded model.
        device: Torch device name of the model.
        n_turns: Turns of a voice, at least 3.
    """

    unit = "turn"

    def __init__(self, model: TensorStreamingModel, device: str, n_turns: int) -> None:
        self._instance = TensorStreamingInstance(model, SLOTS, device, shares_pages=False)
        self._spec = model.spec
        self._n_turns = n_turns
        self._n_plans = 0
        self.tolerance = tolerance_of(model.spec.precision)

    @property
    def n_pieces(self) -> int:
        """Turns of a voice."""
        return self._n_turns

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        """One step that gathers its rows."""
        return self._ask(asks, None)

    def ask_as_they_lie(self, asks: Sequence[Ask]) -> list[Answer]:
        """See ``SlotSubject``."""
        return self._ask(asks, span_of(asks))

    def _ask(self, asks: Sequence[Ask], span: SlotSpan | None) -> list[Answer]:
        self._n_plans += 1
        plan = BatchPlan(
            plan_id=self._n_plans,
            instance=InstanceIndex(0),
            rows=tuple(self._row(ask) for ask in asks),
            audio=(),
            tensors=tuple(made_up(self._spec, ask.voice, ask.piece) for ask in asks),
            span=span,
        )
        return answers(self._instance.run_step(plan), len(asks), _told)

    def clear(self, slot: int) -> None:
        """See ``SlotSubject``."""
        self._instance.store.initialise((slot,))

    def keep(self, slot: int) -> object:
        """See ``SlotSubject``."""
        return self._instance.store.snapshot(slot)

    def put(self, slot: int, kept: object) -> None:
        """See ``SlotSubject``."""
        self._instance.store.restore(slot, cast(Any, kept))

    def is_as_kept(self, slot: int, kept: object) -> bool:
        """See ``SlotSubject``."""
        return same_state(self._instance.store.snapshot(slot), kept)

    def _row(self, ask: Ask) -> BatchRow:
        return BatchRow(
            slot=SlotIndex(ask.slot),
            generation=0,
            sequence_id=SequenceId(f"probe-{ask.slot}"),
            start=ask.start,
            flush=False,
            end=ask.piece == self._n_turns - 1,
            first_sample=0,
            n_samples=0,
            ready_at_ns=0,
            request_id=RequestId(ask.piece),
            # of the voice, not of the run: a model may answer with it
            correlation_id=1_000 + ask.voice,
        )


class TensorRequests:
    """A TensorModel (``Subject``).

    Args:
        model: The loaded model.
        device: Torch device name of the model.
    """

    unit = "request"
    second = "the second of two requests"

    def __init__(self, model: TensorModel, device: str) -> None:
        self._instance = TensorInstance(model, device)
        self._spec = model.spec
        self._n_plans = 0
        self.tolerance = tolerance_of(model.spec.precision)

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        """One batch."""
        self._n_plans += 1
        requests = tuple(
            Request(request_id=RequestId(index), payload=made_up(self._spec, ask.voice, ask.piece))
            for index, ask in enumerate(asks)
        )
        batch = RequestBatch(
            plan_id=self._n_plans, instance=InstanceIndex(0), requests=requests, queued_at_ns=(0,) * len(requests)
        )
        return answers(self._instance.run_batch(batch), len(requests), _told)


def made_up(spec: ModelSpec, voice: int, piece: int) -> Tensors:
    """Inputs that differ from voice to voice and from piece to piece, and are the same each time."""
    arrays: dict[str, NDArray[Any]] = {}
    for place, (name, declared) in enumerate(sorted(spec.inputs.items())):
        if not declared.optional:
            number = 100 * place + 10 * voice + piece
            length = LENGTH + (number % 3 if declared.ragged else 0)
            shape = tuple(length if size == -1 else size for size in declared.shape)
            arrays[name] = _values(declared, number, shape)[None]
    return Tensors(arrays=arrays)


def _values(declared: TensorSpec, number: int, shape: tuple[int, ...]) -> NDArray[Any]:
    kind = np.dtype(NUMPY_TYPES[declared.datatype])
    if kind.kind == "O":
        texts = np.empty(shape, dtype=object)
        for place, index in enumerate(np.ndindex(shape)):
            texts[index] = SENTENCES[(number + place) % len(SENTENCES)]
        return texts
    generator = np.random.default_rng(number)
    if kind.kind == "f":
        return generator.standard_normal(shape).astype(kind)
    return generator.integers(0 if kind.kind == "b" else 1, 2 if kind.kind == "b" else 10, shape).astype(kind)


def _told(output: object) -> Answer:
    """Whole numbers and texts are compared as they are, others with a tolerance."""
    if not isinstance(output, Tensors):
        return Answer(said="" if output is None else str(output))
    said: list[str] = []
    numbers: list[float] = []
    for name, array in sorted(output.arrays.items()):
        if array.dtype.kind == "f":
            numbers += [float(number) for number in array.ravel()]
        else:
            words = ", ".join(_text(value) for value in array.ravel())
            said.append(words if len(output.arrays) == 1 else f"{name} {words}")
    return Answer(said="; ".join(said), numbers=tuple(numbers))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
