"""No utterance ends within a word: whole chapters at default settings, against a forced alignment of their text."""

import numpy as np
import pytest

from asr_model.alignment import Aligner
from asr_model.live.model import LiveModel
from asr_model.transcript import EndedUtterance, UtteranceEnd, Word
from tests.asr_model.conftest import samples_of_file
from tests.support.cut_words import boundaries, cut_words, spoken_words
from tests.support.fixtures import SharedRow, shared_rows
from tests.support.slot_player import SlotPlayer

SECOND = 16_000


def word(start_s: float, end_s: float) -> Word:
    return Word(text="word", start_s=start_s, end_s=end_s, confidence=1.0)


def ended(at_s: float, cause: UtteranceEnd = UtteranceEnd.LENGTH, tail_s: float = 0.0) -> EndedUtterance:
    tail = round(tail_s * SECOND)
    return EndedUtterance(cause=cause, first_sample=0, end_sample=round(at_s * SECOND), words=(), tail_samples=tail)


def test_a_word_is_cut_by_an_end_within_it_that_the_service_made_and_by_no_other() -> None:
    audio = (np.random.default_rng(1).standard_normal(2 * SECOND) / 10).astype(np.float32)
    words = [word(0.2, 0.6), word(0.6, 1.2)]
    assert [cut.at_s for cut in cut_words(audio, words, [ended(0.4), ended(0.62), ended(1.0)])] == [0.4, 1.0]
    assert cut_words(audio, words, [ended(0.4, UtteranceEnd.FINALIZE), ended(1.0, UtteranceEnd.END)]) == []
    assert [cut.at_s for cut in cut_words(audio, words, [ended(1.6, tail_s=0.7)])] == [0.9]
    audio[round(0.9 * SECOND) :] = 0.0  # the alignment has drawn the word out into silence
    assert [cut.at_s for cut in cut_words(audio, words, [ended(0.8), ended(1.0)])] == [0.8]
    assert [each.cause for each in boundaries([ended(0.4), ended(1.0, UtteranceEnd.END)])] == [UtteranceEnd.LENGTH]


@pytest.mark.slow
@pytest.mark.parametrize("chapter", shared_rows("long"), ids=lambda row: row.id)
def test_no_word_of_a_chapter_is_cut(live: LiveModel, chapter: SharedRow) -> None:
    audio = samples_of_file(chapter.path)
    player = SlotPlayer(live, 1)
    played = player.open(0, audio)
    player.play()
    heard = [word for ended in played.ended for word in ended.words]
    words = spoken_words(Aligner(), audio, chapter.text, heard)
    found = boundaries(played.ended)
    print(f"{chapter.id}: {len(found)} ends in {len(audio) / SECOND:.0f} s, {len(words)} words")
    assert len(found) >= len(audio) / SECOND / 21
    assert cut_words(audio, words, found) == []
