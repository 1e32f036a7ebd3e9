"""Words and their times from tokens and the frames they were read from."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asr_model.alignment import Aligner
from asr_model.final.model import build
from asr_model.moonshine.alignment_heads import attention_centre
from asr_model.moonshine.dimensions import SAMPLE_RATE
from asr_model.moonshine.tokenizer import Tokenizer
from asr_model.moonshine.weights import load_weights
from asr_model.moonshine.word_times import FRAME_S, READ_AFTER_START_S, timed_words
from tests.asr_model.conftest import Utterance

SECOND_FRAMES = 1 / FRAME_S


@cache
def tokenizer() -> Tokenizer:
    return load_weights().tokenizer()


def frame_of(second: float) -> float:
    """The frame from which a word that starts then is read."""
    return (second + READ_AFTER_START_S) * SECOND_FRAMES


def test_nothing_said_gives_no_words() -> None:
    assert timed_words(tokenizer(), [], [], [], n_frames=100) == ()


def test_tokens_that_spell_nothing_give_no_words() -> None:
    assert timed_words(tokenizer(), [32_500, 0], [3, 4], [0.5, 0.5], n_frames=20) == ()


def test_a_word_ends_where_the_next_one_starts() -> None:
    words = timed_words(
        tokenizer(), tokenizer().tokens("good day"), [frame_of(1.0), frame_of(1.3)], [0.9, 0.5], n_frames=100
    )
    assert [(word.text, word.confidence) for word in words] == [("good", 0.9), ("day", 0.5)]
    assert words[0].start_s == pytest.approx(1.0)
    assert words[0].end_s == words[1].start_s == pytest.approx(1.3)


def test_a_word_before_a_pause_does_not_last_through_it() -> None:
    words = timed_words(
        tokenizer(), tokenizer().tokens("good day"), [frame_of(1.0), frame_of(3.0)], [1.0, 1.0], n_frames=200
    )
    assert 1.2 < words[0].end_s < 1.6
    assert 3.2 < words[1].end_s < 3.6


def test_pieces_and_punctuation_make_one_word() -> None:
    tokens = tokenizer().tokens("Certainly, unforgettable!")
    words = timed_words(
        tokenizer(), tokens, np.linspace(10, 60, len(tokens)).tolist(), [0.5] * len(tokens), n_frames=99
    )
    assert [word.text for word in words] == ["Certainly,", "unforgettable!"]


def test_punctuation_read_in_the_pause_does_not_prolong_the_word() -> None:
    tokens = tokenizer().tokens("good. day")
    frames = [frame_of(1.0), frame_of(2.9), frame_of(3.0)]
    words = timed_words(tokenizer(), tokens, frames, [1.0] * 3, n_frames=200)
    assert words[0].end_s < 1.6


@given(data=st.data(), n_frames=st.integers(4, 400))
def test_times_go_forward_inside_the_audio(data: st.DataObject, n_frames: int) -> None:
    tokens = data.draw(st.lists(st.integers(0, 32_767), max_size=60))
    some_frame = st.floats(0, n_frames)
    frames = data.draw(st.lists(some_frame, min_size=len(tokens), max_size=len(tokens)))
    words = timed_words(tokenizer(), tokens, frames, [0.5] * len(tokens), n_frames=n_frames)
    before = 0.0
    for word in words:
        assert word.text
        assert before <= word.start_s < word.end_s <= n_frames * FRAME_S + 1e-9
        before = word.end_s - 1e-9
    assert "".join("".join(word.text for word in words).split()) == "".join(tokenizer().text(tokens).split())


def test_the_centre_of_attention_halves_it() -> None:
    attention = torch.tensor(
        [[0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.1, 0.3], [0.5, 0.0, 0.0, 0.0]]
    )
    assert attention_centre(attention).tolist() == pytest.approx([1.5, 2.0, 3 + 1 / 3, 0.5])


def test_words_are_timed_where_they_are_spoken(utterances: list[Utterance]) -> None:
    """Against forced alignment, which finds words in its own way from the text that is known."""
    aligner, model = Aligner(), build({}, torch.device("cpu"))
    distances: list[float] = []
    some = utterances[2:5]
    outputs = model.run([utterance.audio for utterance in some], lambda: None)
    for utterance, output in zip(some, outputs, strict=True):
        spoken = utterance.text.split()
        if len(spoken) != len(output.words):
            continue
        for said, aligned in zip(output.words, aligner.word_times(utterance.audio, spoken), strict=True):
            distances += [abs(said.start_s - aligned.start_s), abs(said.end_s - aligned.end_s)]
        assert output.words[-1].end_s <= len(utterance.audio) / SAMPLE_RATE
    assert len(distances) > 100
    assert float(np.median(distances)) < 0.04
    assert float(np.percentile(distances, 90)) < 0.12
