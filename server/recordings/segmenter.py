"""Where a recording is cut into pieces that the final model reads: in pauses, else where it is quietest. Pure.

Works on the audio as it comes, so that a recording of hours is never held whole. What it cuts depends on the samples
alone, not on the blocks they come in.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from server.plan import Samples

SAMPLE_RATE: Final = 16_000
FRAME_SAMPLES: Final = 320
"""Loudness is looked at every 20 ms."""
CHECK_FRAMES: Final = 5
"""Whether to cut is asked so often, counted from the piece's start."""
SHORTEST_FRAMES: Final = 300
"""A piece is cut at a pause from 6 s on …"""
LONGEST_FRAMES: Final = 1_200
"""… and after 24 s wherever it is quietest: the model was trained on no longer ones."""
PAUSE_FRAMES: Final = 40
"""Quiet for 0.8 s is a pause in which a piece ends at once."""
SMOOTH_FRAMES: Final = 9
"""Loudness is the mean of so many frames, 180 ms, where a cut is sought without a pause."""
FLOOR_SHARE: Final = 0.1
"""The quietest tenth of a piece's frames is its noise …"""
QUIET_DB: Final = 9.0
"""… and a frame is quiet if it is at most so much louder …"""
SPEECH_RANGE_DB: Final = 14.0
"""… or so much quieter than the loudest tenth."""
SILENCE_DB: Final = -60.0
"""Frames below it are quiet in any company."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One piece of a recording."""

    first_sample: int
    """Its place in the recording."""
    samples: Samples
    """float32 [N], 16 kHz."""

    @property
    def start_s(self) -> float:
        """Where it begins in the recording."""
        return self.first_sample / SAMPLE_RATE


class Segmenter:
    """One recording, from its first block to its last piece. Pieces follow each other without gap or overlap."""

    def __init__(self) -> None:
        self._blocks: list[Samples] = []
        self._n_samples = 0
        self._levels_db: list[float] = []
        self._rest: Samples = np.empty(0, dtype=np.float32)
        """Of the last frame, which is not whole."""
        self._first_sample = 0

    def push(self, samples: Samples) -> list[Segment]:
        """The next samples, float32 [N]. Returns the pieces that are whole now, in order."""
        self._blocks.append(samples)
        self._n_samples += samples.size
        audio = np.concatenate((self._rest, samples))
        n_frames = audio.size // FRAME_SAMPLES
        self._rest = audio[n_frames * FRAME_SAMPLES :]
        frames = audio[: n_frames * FRAME_SAMPLES].reshape(n_frames, FRAME_SAMPLES)
        segments: list[Segment] = []
        for level_db in levels_db(frames).tolist():
            self._levels_db.append(level_db)
            n_cut = cut_frames(self._levels_db)
            if n_cut is not None:
                segments.append(self._cut(n_cut))
        return segments

    def finish(self) -> list[Segment]:
        """The recording has ended: its last piece, if there is any audio left."""
        return [self._take(self._n_samples)] if self._n_samples else []

    def _cut(self, n_frames: int) -> Segment:
        self._levels_db = self._levels_db[n_frames:]
        return self._take(n_frames * FRAME_SAMPLES)

    def _take(self, n_samples: int) -> Segment:
        audio = np.concatenate(self._blocks)
        segment = Segment(first_sample=self._first_sample, samples=audio[:n_samples].copy())
        self._blocks = [audio[n_samples:]]
        self._n_samples -= n_samples
        self._first_sample += n_samples
        return segment


def levels_db(frames: Samples) -> NDArray[np.float64]:
    """Loudness of frames float32 [N, F]: decibels below full scale, at least -120."""
    power = np.square(frames, dtype=np.float64).mean(axis=1)
    return np.asarray(10.0 * np.log10(np.maximum(power, 1e-12)), dtype=np.float64)


def cut_frames(levels: list[float]) -> int | None:
    """How many frames the piece takes, now that the last of ``levels`` has come; None: it goes on.

    It ends in the middle of the first pause after the shortest length, or, at the longest, in the longest quiet run
    or, without one, at the quietest place of its second half.
    """
    n_frames = len(levels)
    if n_frames < SHORTEST_FRAMES + PAUSE_FRAMES // 2 or n_frames % CHECK_FRAMES:
        return None
    if n_frames < LONGEST_FRAMES and levels[-1] > levels[-PAUSE_FRAMES] + QUIET_DB:
        return None  # it has become loud: no pause ends here
    array = np.asarray(levels)
    quiet = array <= quiet_below_db(array)
    if quiet[-PAUSE_FRAMES:].all():
        return n_frames - PAUSE_FRAMES // 2
    return _best_cut(array, quiet) if n_frames >= LONGEST_FRAMES else None


def quiet_below_db(levels: NDArray[np.float64]) -> float:
    """The loudness up to which a frame of this piece is quiet."""
    noise_db, speech_db = np.quantile(levels, (FLOOR_SHARE, 1.0 - FLOOR_SHARE))
    return max(SILENCE_DB, min(float(noise_db) + QUIET_DB, float(speech_db) - SPEECH_RANGE_DB))


def _best_cut(levels: NDArray[np.float64], quiet: NDArray[np.bool_]) -> int:
    """The middle of the longest quiet run after the shortest length, else the middle of the quietest 180 ms there."""
    tail = quiet[SHORTEST_FRAMES:]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], tail.astype(np.int8), [0]))))
    starts, ends = edges[::2], edges[1::2]
    if starts.size and (ends - starts).max() >= SMOOTH_FRAMES:
        longest = int(np.argmax(ends - starts))
        return SHORTEST_FRAMES + int(starts[longest] + ends[longest]) // 2
    smooth = np.convolve(levels[SHORTEST_FRAMES:], np.full(SMOOTH_FRAMES, 1.0 / SMOOTH_FRAMES), mode="valid")
    return SHORTEST_FRAMES + int(np.argmin(smooth)) + SMOOTH_FRAMES // 2
