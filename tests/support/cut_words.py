"""Which words utterances cut: the yardstick is a forced alignment of what is known to be said."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final

import numpy as np

from asr_model.alignment import Aligner
from asr_model.contract import Samples
from asr_model.transcript import EndedUtterance, UtteranceEnd, Word
from clients.word_error_rate import words

SECOND: Final = 16_000
TOLERANCE_S: Final = 0.05
"""A forced alignment puts the edge of a word in fluent speech within this of where ears do."""
BLOCK, STOP = SECOND // 50, SECOND * 12 // 100
SILENCE_DB: Final = 25.0
"""So far below the speech around it, for the length of ``STOP`` (0.12 s), it is silent: stops in words are shorter."""
ANCHOR_S, LEAD_S = 8.0, 0.1
LEAST_SHARE: Final = 0.003
"""Less of a word's energy is no part of it, but a pause or a click that the alignment took for one."""
SERVICE_MADE: Final = frozenset({UtteranceEnd.ENDPOINT, UtteranceEnd.LENGTH, UtteranceEnd.STALL})


@dataclass(frozen=True, slots=True, kw_only=True)
class CutWord:
    """A word that does not lie in one utterance."""

    word: Word
    at_s: float
    """The end of the utterance."""
    cause: UtteranceEnd


def boundaries(ended: Sequence[EndedUtterance]) -> list[EndedUtterance]:
    """Utterances of which the service made the end."""
    return [utterance for utterance in ended if utterance.cause in SERVICE_MADE]


def cut_words(audio: Samples, words: Sequence[Word], ended: Sequence[EndedUtterance]) -> list[CutWord]:
    """Words with an utterance's end inside of them, by more than the tolerance from either edge.

    Both the end on the timeline counts and that of the audio that the final model reads. An end in silence cuts no
    word: a forced alignment may draw out a word before a pause.
    """
    found = []
    for utterance in boundaries(ended):
        for end_sample in sorted({utterance.end_sample, utterance.audio.end_sample}):
            at_s = end_sample / SECOND
            found += [
                CutWord(word=word, at_s=at_s, cause=utterance.cause)
                for word in words
                if word.start_s + TOLERANCE_S < at_s < word.end_s - TOLERANCE_S and _splits(audio, word, at_s)
            ]
    return found


def _splits(audio: Samples, word: Word, at_s: float) -> bool:
    """Whether the word sounds on both sides of a place, and at it."""
    first, at, last = (round(each_s * SECOND) for each_s in (word.start_s, at_s, word.end_s))
    power = np.square(audio[max(0, at - SECOND) : at + SECOND], dtype=np.float64)
    here = min(at, SECOND)
    usual = np.percentile(power[: len(power) // BLOCK * BLOCK].reshape(-1, BLOCK).mean(1), 90)
    windows = [power[max(0, here - shift) : here - shift + STOP] for shift in (0, STOP // 2, STOP)]
    is_silent = min(window.mean() for window in windows if len(window)) < usual * 10 ** (-SILENCE_DB / 10)
    parts = (audio[first:at], audio[at:last])
    before, after = (float(np.square(part, dtype=np.float64).sum()) for part in parts)
    return not is_silent and min(before, after) > LEAST_SHARE * (before + after)


def spoken_words(aligner: Aligner, audio: Samples, text: str, heard: Sequence[Word]) -> list[Word]:
    """The words of a long text with their times. Words that were heard right hold the alignment in place: between two
    of them, some seconds apart, the text is aligned by force. ``heard`` may have errors; its times need not be exact.
    """
    said = text.split()
    anchors = [(0, 0.0)]
    for index, at_s in _anchors(said, heard):
        if at_s - anchors[-1][1] >= ANCHOR_S:
            anchors.append((index, at_s))
    anchors.append((len(said), len(audio) / SECOND))
    found: list[Word] = []
    for (first, from_s), (last, until_s) in pairwise(anchors):
        begin_s = max(0.0, from_s - LEAD_S)
        part = audio[round(begin_s * SECOND) : round(until_s * SECOND)]
        found += [
            replace(word, start_s=word.start_s + begin_s, end_s=word.end_s + begin_s)
            for word in aligner.word_times(part, said[first:last])
        ]
    return found


def _anchors(said: Sequence[str], heard: Sequence[Word]) -> Iterator[tuple[int, float]]:
    """Index and time of words in the midst of three that were heard right."""
    plain = [" ".join(words(word)) for word in said], [" ".join(words(word.text)) for word in heard]
    for block in SequenceMatcher(None, *plain, autojunk=False).get_matching_blocks():
        for offset in range(1, block.size - 1):
            yield block.a + offset, heard[block.b + offset].start_s
