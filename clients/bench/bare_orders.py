"""What crosses between the benchmark and the processes of its bare loop."""

from dataclasses import dataclass

from clients.transcribe.audio_file import Samples
from server.workers.orders import ModelSource


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModel:
    """Load a model and keep the speech it will be given."""

    source: ModelSource
    instance: int
    device: str
    threads: int
    track: Samples
    """Played over and over: float32 [N]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoaded:
    """What was loaded."""

    device: str
    """Resolved: ``cpu`` or ``cuda:N``."""
    tick_samples: int
    lookahead_samples: int
    slot_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTicks:
    """Steps of so many rows, one after the other."""

    offsets: tuple[int, ...]
    """Where in the track each row's stream begins."""
    settle_ticks: int
    """First steps that are not timed."""
    timed_ticks: int
    limit_ns: int
    """Time after which it ends early, with one timed tick at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TicksRun:
    """What each of the timed steps took."""

    step_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUtterances:
    """Batches of a model without state."""

    utterances: tuple[tuple[int, int], ...]
    """First sample and one past the last of each, in the track."""
    target_size: int
    """Of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UtterancesRun:
    """What all batches took together."""

    n_utterances: int
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An order that could not be carried out."""

    error: str


BareOrder = LoadModel | RunTicks | RunUtterances
BareReply = ModelLoaded | TicksRun | UtterancesRun | Failed
