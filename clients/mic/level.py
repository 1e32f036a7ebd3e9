"""How loud a microphone is. Pure."""

import math
from dataclasses import dataclass

import numpy as np

from clients.transcribe.audio_file import Samples

READING_S = 0.1
"""Audio of one reading."""
FLOOR_DB = -60.0
"""Level of silence, and the least that is told apart."""
CLIPPING = 0.99
"""Magnitude that a sample has when it was too loud for the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One reading."""

    rms_db: float
    """Of full scale, from FLOOR_DB to 0."""
    is_clipping: bool
    heard_s: float
    """Audio since the start."""
    mute_s: float
    """Audio since the last sample that was not exactly 0: what a device that is muted or forbidden gives."""


class LevelMeter:
    """A reading for every tenth of a second of audio, whatever the blocks are."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._heard_samples = 0
        self._mute_samples = 0
        self._open_samples = 0
        self._energy = 0.0
        self._peak = 0.0

    def add(self, samples: Samples) -> Level | None:
        """``samples``: float32 [N], N > 0. A reading, if one is due."""
        sounding = np.flatnonzero(samples)
        self._mute_samples = (
            len(samples) - 1 - int(sounding[-1]) if len(sounding) else self._mute_samples + len(samples)
        )
        self._heard_samples += len(samples)
        self._open_samples += len(samples)
        self._energy += float(np.square(samples, dtype=np.float64).sum())
        self._peak = max(self._peak, float(np.abs(samples).max()))
        if self._open_samples < READING_S * self._sample_rate:
            return None
        mean = self._energy / self._open_samples
        level = Level(
            rms_db=min(0.0, max(FLOOR_DB, 10.0 * math.log10(mean) if mean > 0.0 else FLOOR_DB)),
            is_clipping=self._peak >= CLIPPING,
            heard_s=self._heard_samples / self._sample_rate,
            mute_s=self._mute_samples / self._sample_rate,
        )
        self._open_samples, self._energy, self._peak = 0, 0.0, 0.0
        return level


def bar(level: Level, cells: int) -> str:
    """The level as so many cells, all of them full at 0 dB."""
    full = round((level.rms_db - FLOOR_DB) / -FLOOR_DB * cells)
    return "█" * full + "·" * (cells - full)
