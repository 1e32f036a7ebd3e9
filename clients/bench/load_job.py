"""What the load client is told and what it brings back; crosses between processes."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clients.connection import ANYONE, Access


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """So many paced streams."""

    url: str
    access: Access = ANYONE
    streams: int
    audio: NDArray[np.int16]
    """One track, played over and over: int16 [N], 16 kHz."""
    tick_samples: int
    chunk_ms: int
    settle_s: float
    """From the start of the streams until the measurement begins."""
    measure_s: float
    grace_s: float
    """After it, time for what is still due."""

    @property
    def seconds(self) -> float:
        """Audio that every stream sends."""
        return self.settle_s + self.measure_s


@dataclass(slots=True, kw_only=True)
class StreamRecord:
    """One stream: what was due when, and what came. Messages are kept as they came, to be read afterwards."""

    offset_samples: int
    """Where in the track it began."""
    started_at_ns: int = 0
    """When its first sample was spoken."""
    late_ns: list[int] = field(default_factory=list)
    """Of each chunk: how much later than due it was handed to the socket."""
    received: list[tuple[int, str | bytes]] = field(default_factory=list)
    """When, and the message."""
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """All streams of a job."""

    began_at_ns: int
    """When the measurement began."""
    streams: tuple[StreamRecord, ...]
    failure: str = ""
    """Why there was none."""
