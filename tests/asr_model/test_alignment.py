"""Forced alignment of known words."""

from itertools import pairwise

import numpy as np
import pytest

from asr_model.alignment import Aligner, forward_path
from asr_model.moonshine.dimensions import SAMPLE_RATE
from asr_model.moonshine.weights import load_weights
from tests.asr_model.conftest import Utterance, samples_of
from tests.support.fixtures import fixture


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner(load_weights())


def placed(name: str, at_s: float, total_s: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A fixture within faint noise."""
    rng = np.random.default_rng(1)
    audio = rng.normal(0, 1e-4, int(total_s * SAMPLE_RATE)).astype(np.float32)
    clip = samples_of(fixture(name))
    first = int(at_s * SAMPLE_RATE)
    audio[first : first + len(clip)] += clip
    return audio


@pytest.mark.parametrize("at_s", [0.3, 1.7])
def test_a_word_in_silence_is_found_where_it_is(aligner: Aligner, at_s: float) -> None:
    clip_s = len(samples_of(fixture("certainly_1088"))) / SAMPLE_RATE
    (word,) = aligner.word_times(placed("certainly_1088", at_s, 3.0), ["certainly"])
    assert word.start_s == pytest.approx(at_s, abs=0.15)
    assert word.end_s == pytest.approx(at_s + clip_s, abs=0.15)


def test_delayed_audio_delays_every_word(aligner: Aligner, utterances: list[Utterance]) -> None:
    spoken = utterances[0].text.split()
    plain = np.array(aligner.word_ends(utterances[0].audio, spoken))
    delayed = np.array(aligner.word_ends(np.pad(utterances[0].audio, (SAMPLE_RATE, 0)), spoken))
    assert np.median(np.abs(delayed - plain - 1.0)) < 0.03


def test_words_follow_each_other(aligner: Aligner, utterances: list[Utterance]) -> None:
    for utterance in utterances[:2]:
        words = aligner.word_times(utterance.audio, utterance.text.split())
        assert [word.text for word in words] == utterance.text.split()
        for word, following in pairwise(words):
            assert word.start_s < word.end_s <= following.start_s + 0.001
        assert words[-1].end_s <= len(utterance.audio) / SAMPLE_RATE


@pytest.mark.slow
def test_long_speech_is_aligned_in_windows(aligner: Aligner, utterances: list[Utterance]) -> None:
    """Utterances joined to a minute give the times that each gives alone."""
    joined, spoken, expected = [], [], []
    at_s = 0.0
    for utterance in utterances:
        alone = aligner.word_times(utterance.audio, utterance.text.split())
        expected += [at_s + word.start_s for word in alone]
        spoken += utterance.text.split()
        joined.append(utterance.audio)
        at_s += len(utterance.audio) / SAMPLE_RATE
    assert at_s > 50
    found = [word.start_s for word in aligner.word_times(np.concatenate(joined), spoken)]
    distances = np.abs(np.array(found) - expected)
    assert np.median(distances) < 0.03
    assert np.percentile(distances, 95) < 0.3


def test_nothing_to_align_is_no_word(aligner: Aligner) -> None:
    assert aligner.word_ends(np.zeros(SAMPLE_RATE, np.float32), []) == []


@pytest.mark.parametrize(("n_samples", "words"), [(100, ["a"]), (SAMPLE_RATE, ["a", " "])])
def test_what_cannot_be_aligned_is_an_error(aligner: Aligner, n_samples: int, words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"shorter|empty"):
        aligner.word_ends(np.zeros(n_samples, np.float32), words)


def test_the_path_goes_forward_along_the_attention() -> None:
    attention = np.full((3, 100), 0.001, np.float32)
    attention[0, 20] = attention[1, 50] = attention[2, 80] = 0.9
    assert forward_path(attention) == pytest.approx([20.5, 50.5, 80.5], abs=0.1)


def test_the_path_does_not_follow_a_token_that_strays() -> None:
    attention = np.full((4, 100), 0.001, np.float32)
    attention[0, 90] = 0.5
    attention[0, 10] = 0.3
    attention[1, 20] = attention[2, 30] = attention[3, 40] = 0.9
    path = forward_path(attention)
    assert path[0] == pytest.approx(10.5, abs=0.1)
    assert (np.diff(path) >= 0).all()


def test_a_word_that_was_not_said_is_placed_in_a_silence_deeper_than_the_background(
    aligner: Aligner, utterances: list[Utterance]
) -> None:
    """The quietest twentieth of the audio is the background; what is quieter still rises above nothing."""
    said = utterances[0]
    noise = np.random.default_rng(3).standard_normal(len(said.audio)).astype(np.float32) * 1e-3
    audio = np.concatenate((said.audio + noise, np.zeros(SAMPLE_RATE // 3, np.float32)))
    words = [*said.text.split(), "and", "then", "some", "more", "words"]
    times = aligner.word_times(audio, words)
    assert [word.text for word in times] == words
    assert all(word.start_s < word.end_s for word in times)
