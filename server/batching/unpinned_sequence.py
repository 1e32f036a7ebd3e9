"""A sequence that is tied to nothing: what waits of it, and the one row that it has asked for. Pure."""

from dataclasses import dataclass
from typing import Final

from server.batching.sample_queue import PortionKind, SampleQueue
from server.errors import MoorageError
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import BatchRow, Chunk, Samples, SequenceOptions

NO_SLOT: Final = SlotIndex(0)
"""Of every row: the instance finds the state itself, by the sequence's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRow:
    """A row with its audio, as a request."""

    request_id: RequestId
    row: BatchRow
    audio: Samples


@dataclass(slots=True, kw_only=True, eq=False)
class UnpinnedSequence:
    """From START to the terminal effect."""

    sequence_id: SequenceId
    queue: SampleQueue
    options: SequenceOptions | None
    solo_on: InstanceIndex | None
    """The one instance that its rows run on; None: any."""
    asked: AskedRow | None = None
    """The row that waits or runs: the next is asked for when it is answered."""
    has_begun: bool = False
    """Whether its first row was asked for."""
    idle_since_ns: int = 0
    """Last sign of life; counts only while nothing is asked."""
    parting: MoorageError | None = None
    """Why it was ended, if not by its caller; told after its last row."""

    def push(self, chunk: Chunk, now_ns: int) -> None:
        """Take a chunk whole.

        Raises:
            QueueFull: there is no room; nothing was taken.
        """
        self.queue.push(chunk.samples, now_ns, finalize=chunk.finalize, end=chunk.end)
        self.parting = chunk.parting

    def ask(self, request_id: RequestId) -> AskedRow:
        """Take the queue's head, which must be there, as the row that is asked for now."""
        taken, start = self.queue.take(), not self.has_begun
        row = BatchRow(
            slot=NO_SLOT,
            generation=0,
            sequence_id=self.sequence_id,
            start=start,
            flush=taken.portion.kind is not PortionKind.TICK,
            end=taken.portion.kind is PortionKind.END,
            first_sample=taken.first_sample,
            n_samples=taken.samples.size,
            ready_at_ns=taken.portion.ready_at_ns,
            options=self.options if start else None,
        )
        self.asked = AskedRow(request_id=request_id, row=row, audio=taken.samples)
        self.has_begun = True
        return self.asked
