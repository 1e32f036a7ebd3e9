"""The speech that a benchmark plays: recordings one after the other, each with a pause behind it, over and over."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from clients.replay.reference import references
from clients.transcribe.audio_file import MODEL_RATE, Samples, read_audio, to_linear16
from clients.word_error_rate import words

PAUSE_S: Final = 1.5
"""Long enough for an endpoint."""
FIXTURES: Final = Path(__file__).resolve().parents[2] / "audio_fixtures" / "real" / "utterance"
WARM_UP: Final = Path(__file__).resolve().parents[2] / "asr_model" / "weights" / "warmup.flac"


class WordAligner(Protocol):
    """Finds words in audio."""

    def word_ends(self, audio: Samples, words: Sequence[str]) -> list[float]:
        """Second at which each word ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenWord:
    """A word and where it ends."""

    text: str
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """The recordings as one."""

    samples: Samples
    """float32 [N] at 16 kHz."""
    words: tuple[SpokenWord, ...]
    """In order; empty where the text is not known."""
    utterances: tuple[tuple[int, int], ...]
    """First sample and one past the last of each recording."""
    names: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Length; after it, it starts again."""
        return len(self.samples) / MODEL_RATE

    @property
    def description(self) -> str:
        """In words."""
        spoken_s = sum(end - first for first, end in self.utterances) / MODEL_RATE
        share = round(100 * spoken_s / self.seconds)
        return f"{len(self.names)} recordings, {self.seconds:.0f} s, {share} % speech ({', '.join(self.names)})"

    def offset_samples(self, stream: int, streams: int) -> int:
        """Where a stream begins: all of them evenly over the track."""
        return len(self.samples) * stream // streams

    def excerpt(self, first_sample: int, n_samples: int) -> Samples:
        """That part of the endless repetition: float32 [n_samples]."""
        index = (first_sample + np.arange(n_samples)) % len(self.samples)
        excerpt: Samples = self.samples[index]
        return excerpt

    def words_between(self, first_s: float, last_s: float) -> list[SpokenWord]:
        """Words that end in there, with times of the endless repetition."""
        found: list[SpokenWord] = []
        if not self.words:
            return found
        for turn in range(int(first_s // self.seconds), int(last_s // self.seconds) + 1):
            ends = ((word.text, word.end_s + turn * self.seconds) for word in self.words)
            found += [SpokenWord(text=text, end_s=end_s) for text, end_s in ends if first_s <= end_s < last_s]
        return found

    def linear16(self) -> NDArray[np.int16]:
        """As it goes over the wire: int16 [N]."""
        return np.frombuffer(to_linear16(self.samples), dtype="<i2")


def default_files(most: int) -> list[Path]:
    """Recordings of real readers, where the sources are; else the one that the package carries."""
    return sorted(FIXTURES.glob("*.flac"))[:most] or [WARM_UP]


def make_track(files: Sequence[Path], aligner: WordAligner | None) -> Track:
    """The files as one track, with the words of those whose text a manifest near them has.

    Raises:
        BadAudio: A file cannot be read.
        BadParameter: A manifest cannot be read.
    """
    texts = references(files, None, None) if aligner is not None else {}
    parts: list[Samples] = []
    spoken: list[SpokenWord] = []
    utterances: list[tuple[int, int]] = []
    position = 0
    for path in files:
        audio = read_audio(path)
        said = words(texts.get(path, ""))
        if aligner is not None and said:
            ends_s = aligner.word_ends(audio, said)
            begin_s = position / MODEL_RATE
            spoken += [SpokenWord(text=text, end_s=begin_s + at) for text, at in zip(said, ends_s, strict=True)]
        utterances.append((position, position + len(audio)))
        parts += [audio, np.zeros(round(PAUSE_S * MODEL_RATE), np.float32)]
        position += len(parts[-2]) + len(parts[-1])
    return Track(
        samples=np.concatenate(parts),
        words=tuple(spoken),
        utterances=tuple(utterances),
        names=tuple(path.stem for path in files),
    )
