"""Audio files as mono float32 blocks: decoded, mixed down and resampled piece by piece, never held whole.

Whatever libsndfile reads: WAV, FLAC, MP3, Ogg/Opus, Ogg/Vorbis and more. A file that cannot be what it says it is
raises ``BadAudio`` with the file's name; what was decoded before a fault in its middle has been handed out by then.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from server.errors import BadAudio

Samples = NDArray[np.float32]
"""float32 [N], mono, in [-1, 1]."""

MODEL_RATE = 16_000
"""Samples per second of the models."""
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""Sample rates that a recording of speech may have; outside of them the header is damaged."""
LOUDEST = 32.0
"""Greatest magnitude of a float sample that is taken for an overshoot (30 dB) and clipped, not for another scale."""
SHORTFALL_S = 0.1
"""Audio that a compressed file may lack against its header (encoder delay, padding) before it counts as truncated."""
WAV_SHORTFALL = re.compile(r"^\s*data : (\d+) \(should be (\d+)\)", re.MULTILINE)
WAV_OPEN_END = 0x7FFF_0000
"""Sizes from here on are what programs write that cannot seek back: the length is unknown, not wrong."""

UNKNOWN_FORMAT = frozenset({1, 7})
"""What libsndfile says of content that it cannot place: no such format, or, of an ending such as .mp3, that there is no
file; whether there is one is checked before."""


class _ForwardFile(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no types
    """A file that is read from its start to its end. soundfile seeks after every read of a file that can seek, and a
    seek in an MP3 loses the bits that a frame borrows from those before it: silence instead of speech."""

    def seekable(self) -> bool:
        """False: never seek."""
        return False


class AudioFile:
    """One open audio file.

    Raises:
        BadAudio: on opening: no such file, an unknown format, a damaged header, no samples, shorter than declared.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._open()
        try:
            self._check_header()
        except BadAudio:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        self._file.close()

    @property
    def rate(self) -> int:
        """Samples per second of the file."""
        return int(self._file.samplerate)

    @property
    def seconds(self) -> float:
        """Length by the header."""
        return float(self._file.frames) / self.rate

    def blocks(self, block_s: float = 1.0) -> Iterator[Samples]:
        """The file's samples at its own rate, mixed down: float32 [N] in [-1, 1], N the same but for the last.

        Raises:
            BadAudio: A sample is NaN, infinite or on another scale, or the data ends before the header says.
        """
        size = max(1, round(self.rate * block_s))
        done = 0
        while True:
            try:
                block: Samples = self._file.read(size, dtype="float32", always_2d=True)
            except soundfile.SoundFileRuntimeError as error:
                raise self._bad(f"is damaged after {done / self.rate:.1f} s: {error}") from error
            if not len(block):
                break
            self._check_samples(block, done)
            done += len(block)
            yield np.clip(block.mean(axis=1), -1.0, 1.0)
        if done < self._file.frames - SHORTFALL_S * self.rate:
            raise self._bad(f"is truncated: {done / self.rate:.1f} s of {self.seconds:.1f} s")

    def resampled(self, rate: int = MODEL_RATE, block_s: float = 1.0) -> Iterator[Samples]:
        """The same at another rate, through a resampler that keeps its state between blocks.

        Raises:
            BadAudio: as ``blocks``.
        """
        if rate == self.rate:
            yield from self.blocks(block_s)
            return
        resampler = soxr.ResampleStream(self.rate, rate, 1, dtype="float32")
        for block in self.blocks(block_s):
            yield from _clipped(resampler.resample_chunk(block))
        yield from _clipped(resampler.resample_chunk(np.zeros(0, np.float32), last=True))

    def _open(self) -> _ForwardFile:
        if self.path.is_dir():
            raise self._bad("is a directory")
        if not self.path.exists():
            raise self._bad("no such file")
        if self.path.stat().st_size == 0 and self.path.is_file():
            raise self._bad("is empty (0 bytes)")
        try:
            return _ForwardFile(self.path)
        except soundfile.SoundFileRuntimeError as error:
            if getattr(error, "code", None) in UNKNOWN_FORMAT:
                raise self._bad("is no audio file: its content is of no format that is known") from error
            reason = getattr(error, "error_string", str(error)).rstrip(".")
            raise self._bad(f"is no audio file that can be read ({reason})") from error
        except TypeError as error:  # what soundfile says of the ending .raw
            raise self._bad("is raw audio without a header") from error

    def _check_header(self) -> None:
        if not LOWEST_RATE <= self.rate <= HIGHEST_RATE:
            raise self._bad(f"declares {self.rate} samples a second, allowed: {LOWEST_RATE} to {HIGHEST_RATE}")
        log = str(self._file.extra_info)
        shortfall = WAV_SHORTFALL.search(log)
        if shortfall is not None:
            declared, found = (int(size) for size in shortfall.groups())
            if found < declared < WAV_OPEN_END:
                raise self._bad(f"is truncated: {found} bytes of audio of the {declared} that its header declares")
        if "Ogg" in log and "Junk after the last page" in log:
            raise self._bad("is truncated: it ends within an Ogg page")
        if not self._file.frames:
            raise self._bad("holds no samples")

    def _check_samples(self, block: Samples, done: int) -> None:
        """``block``: float32 [N, channels]."""
        peak = float(np.abs(block).max())  # NaN if there is one
        if not np.isfinite(peak):
            raise self._bad(f"holds a sample that is no number after {done / self.rate:.1f} s")
        if peak > LOUDEST:
            raise self._bad(f"holds a sample of {peak:g}: float samples must be scaled to [-1, 1]")

    def _bad(self, what: str) -> BadAudio:
        return BadAudio(f"{self.path}: {what}")


def read_audio(path: Path) -> Samples:
    """A whole file at the models' rate, for what needs all of it at once (alignment).

    Raises:
        BadAudio: as ``AudioFile`` and ``AudioFile.blocks``.
    """
    with AudioFile(path) as file:
        return np.concatenate(list(file.resampled()))


def to_linear16(samples: Samples) -> bytes:
    """Little-endian 16-bit samples; exact for what was read from a 16-bit file."""
    values: NDArray[np.int16] = np.clip(np.rint(samples * 32768.0), -32768, 32767).astype("<i2")
    return values.tobytes()


def _clipped(samples: Samples) -> Iterator[Samples]:
    """A resampler's output, if there is any; it may overshoot."""
    if len(samples):
        yield np.clip(samples, -1.0, 1.0)
