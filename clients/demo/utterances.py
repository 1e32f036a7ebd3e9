"""What the demonstration plays: recordings with their texts, by how many ticks of the live model they last."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np

from clients.transcribe.audio_file import MODEL_RATE, AudioFile, Samples
from clients.transcribe.transcription import model_audio
from server.errors import BadAudio, BadParameter

FIXTURES: Final = Path(__file__).resolve().parents[2] / "audio_fixtures"
MANIFEST: Final = "manifest.tsv"
MOST_TICKS: Final = 60
"""Longer recordings are left out: they would be most of the time and say nothing new."""
LEAD_S: Final = 0.2
TAIL_S: Final = 0.1
"""Silence around each recording, as there is around whatever somebody says: words that are cut out of speech without it
are misread even alone."""
NO_UTTERANCES: Final = frozenset({"silence", "pause", "repeat", "long"})
"""Kinds of fixtures that are there for something else."""


class LengthClass(Enum):
    """Utterances by their length in ticks."""

    WORDS = "1–4"
    PHRASES = "5–12"
    SENTENCES = "13–30"
    LONG = "31+"

    @classmethod
    def of(cls, n_ticks: int) -> "LengthClass":
        """The class of an utterance of so many ticks."""
        for length, most in ((cls.WORDS, 4), (cls.PHRASES, 12), (cls.SENTENCES, 30)):
            if n_ticks <= most:
                return length
        return cls.LONG


QUICK: Final = {LengthClass.WORDS: 8, LengthClass.PHRASES: 6, LengthClass.SENTENCES: 4, LengthClass.LONG: 4}
"""Utterances of each class in a quick run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Utterance:
    """One recording of one utterance."""

    name: str
    text: str
    """What is said in it."""
    samples: Samples
    """float32 [N], 16 kHz, with the silence around it."""
    n_ticks: int
    """Ticks that its audio lasts, the last one perhaps not whole; at least 1."""

    @property
    def length(self) -> LengthClass:
        """Its class."""
        return LengthClass.of(self.n_ticks)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """One file of a manifest."""

    path: Path
    text: str
    is_synthesised: bool
    samples: Samples
    """float32 [N], 16 kHz, with silence around what was recorded."""


def read_recordings(folder: Path) -> list[Recording]:
    """All recordings of a folder with a ``manifest.tsv`` (columns ``file`` and ``text``), the real ones first, the
    shorter ones before the longer ones.

    Raises:
        BadParameter: There is no such manifest, or a recording of it cannot be read.
    """
    manifest = folder / MANIFEST
    recordings = [_read(folder, row) for row in _rows(manifest) if row.get("kind") not in NO_UTTERANCES]
    if not recordings:
        raise BadParameter(f"{manifest}: has no recordings with a text (columns file and text)")
    return sorted(recordings, key=lambda each: (each.is_synthesised, each.samples.size, each.path.name))


def as_utterances(recordings: Sequence[Recording], tick_samples: int) -> list[Utterance]:
    """The recordings for a model with ticks of so many samples, without those that are far too long."""
    utterances = [
        Utterance(
            name=each.path.name,
            text=each.text,
            samples=each.samples,
            n_ticks=max(1, -(-each.samples.size // tick_samples)),
        )
        for each in recordings
    ]
    return [each for each in utterances if each.n_ticks <= MOST_TICKS]


def by_length(utterances: Sequence[Utterance]) -> Mapping[LengthClass, list[Utterance]]:
    """The utterances of each class, in their order; every class is there."""
    return {length: [each for each in utterances if each.length is length] for length in LengthClass}


def quick_choice(utterances: Sequence[Utterance]) -> list[Utterance]:
    """The first ones of each class."""
    return [each for length, chosen in by_length(utterances).items() for each in chosen[: QUICK[length]]]


def deal(utterances: Sequence[Utterance], clients: int) -> list[list[Utterance]]:
    """What each of so many clients plays, one after the other.

    All are played, as often as it takes for every client to have one of the longest, so that the load lasts. They begin
    with different classes, so that short and long utterances run side by side.

    Args:
        utterances: At least one.
        clients: At least 1.
    """
    classes = by_length(utterances)
    longest = next(chosen for chosen in reversed(list(classes.values())) if chosen)
    copies = -(-clients // len(longest))
    hands: list[list[tuple[tuple[int, int], Utterance]]] = [[] for _ in range(clients)]
    for place, chosen in enumerate(reversed(list(classes.values()))):
        for index, utterance in enumerate(chosen * copies):
            client = index % clients
            turn = (index // clients, (place + client) % len(classes))
            hands[client].append((turn, utterance))
    return [[utterance for _, utterance in sorted(hand, key=lambda item: item[0])] for hand in hands]


def _silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * MODEL_RATE), dtype=np.float32)


def _read(folder: Path, row: Mapping[str, str]) -> Recording:
    path = folder / row["file"]
    try:
        with AudioFile(path) as file:
            samples = np.concatenate((_silence(LEAD_S), *model_audio(file), _silence(TAIL_S)))
    except BadAudio as error:
        raise BadParameter(str(error)) from error
    is_synthesised = (row.get("source") or "").startswith("synthesised")
    return Recording(path=path, text=row["text"], is_synthesised=is_synthesised, samples=samples)


def _rows(manifest: Path) -> list[dict[str, str]]:
    """Those with a file and a text."""
    try:
        with manifest.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadParameter(f"{manifest}: cannot be read as a manifest: {error}") from error
    return [row for row in rows if row.get("file") and row.get("text")]
