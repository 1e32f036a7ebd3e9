"""What the engine tells of a sequence, in order; the wire protocols turn it into their own messages."""

from dataclasses import dataclass
from enum import Enum

from asr_model.transcript import Sentiment, UtteranceEnd, Word
from server.errors import MoorageError
from server.ids import InstanceIndex, SequenceId, SlotIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """Where and how a result was computed; shown to clients under ``metadata.moorage``."""

    instance: InstanceIndex
    slot: SlotIndex
    batch_size: int
    queue_ms: float
    step_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """The sequence waits for a slot: told at once, and whenever its place changes. Of those that wait for the reader in
    a row only the newest is kept. Its audio is taken meanwhile, as much as its queue holds.
    """

    sequence_id: SequenceId
    position: int
    """1 is next; 0: it has its slot now."""
    expected_wait_s: float | None
    """None: nothing is known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStarted:
    """Speech begins: the first of the sequence, the first after an utterance that an endpoint or Finalize ended, or
    speech after a second without. Comes before the other events of its tick.
    """

    sequence_id: SequenceId
    at_s: float
    """Where it begins in the sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """The open utterance after a step. One comes per tick, whether or not the text changed; of those that wait for the
    reader in a row only the newest is kept.
    """

    sequence_id: SequenceId
    utterance: int
    """Number of the utterance in the sequence, from 0."""
    start_s: float
    """Where the utterance's audio starts: the end of the one before."""
    covered_s: float
    """Seconds of the sequence's audio that this result covers."""
    committed: tuple[Word, ...]
    draft: tuple[Word, ...]
    is_speech: bool
    """Whether there was speech since the event before."""
    step: StepInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class UtteranceFinal:
    """An utterance, complete: the final model's text and the live model's own. In order of utterances."""

    sequence_id: SequenceId
    utterance: int
    cause: UtteranceEnd
    start_s: float
    """``start_s`` and ``end_s`` of successive utterances tile the timeline."""
    end_s: float
    words: tuple[Word, ...]
    """The final text; equal to ``live_words`` where no final model is configured, it could not run or heard nothing."""
    live_words: tuple[Word, ...]
    has_final_pass: bool = True
    """Whether ``words`` are the final model's."""
    step: StepInfo
    sentiment: Sentiment | None = None
    """Of the final text; None: not asked for, not to be had in time, or there are no words."""


class CloseCause(Enum):
    """Why a sequence ended well."""

    END = "end"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceClosed:
    """Terminal: everything that was accepted has been answered (END), or the caller left (CANCELLED)."""

    sequence_id: SequenceId
    cause: CloseCause
    audio_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceFailed:
    """Terminal: why the sequence could not go on."""

    sequence_id: SequenceId
    error: MoorageError


Event = Queued | SpeechStarted | Partial | UtteranceFinal | SequenceClosed | SequenceFailed
TERMINAL = (SequenceClosed, SequenceFailed)
