"""The speech that is played."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from clients.bench.track import PAUSE_S, WARM_UP, SpokenWord, Track, default_files, make_track
from clients.transcribe.audio_file import MODEL_RATE, Samples, read_audio

RAMP = Track(
    samples=np.linspace(0.0, 1.0, MODEL_RATE * 10, dtype=np.float32),
    words=(SpokenWord(text="one", end_s=1.0), SpokenWord(text="nine", end_s=9.0)),
    utterances=((0, MODEL_RATE * 9),),
    names=("ramp",),
)


class EvenAligner:
    """Says that words are spoken evenly."""

    def word_ends(self, audio: Samples, words: Sequence[str]) -> list[float]:
        """Second at which each word ends."""
        return [len(audio) / MODEL_RATE * (index + 1) / len(words) for index in range(len(words))]


def test_it_repeats_without_end() -> None:
    last = len(RAMP.samples) - 2
    assert RAMP.excerpt(last, 4).tolist() == [*RAMP.samples[-2:], *RAMP.samples[:2]]
    assert RAMP.excerpt(last + 5 * len(RAMP.samples), 1).tolist() == [RAMP.samples[last]]


def test_words_repeat_with_it() -> None:
    found = RAMP.words_between(8.5, 30.0)
    assert [(word.text, word.end_s) for word in found] == [
        ("nine", 9.0),
        ("one", 11.0),
        ("nine", 19.0),
        ("one", 21.0),
        ("nine", 29.0),
    ]


def test_streams_begin_evenly_over_it() -> None:
    assert [RAMP.offset_samples(stream, 4) for stream in range(4)] == [0, 40_000, 80_000, 120_000]


def test_recordings_have_pauses_behind_them_and_words_their_place() -> None:
    files = default_files(2)
    assert len(files) == 2
    track = make_track(files, EvenAligner())
    lengths = [len(read_audio(path)) for path in files]
    pause = round(PAUSE_S * MODEL_RATE)
    assert len(track.samples) == sum(lengths) + 2 * pause
    assert track.utterances == ((0, lengths[0]), (lengths[0] + pause, lengths[0] + pause + lengths[1]))
    assert not track.samples[lengths[0] : lengths[0] + pause].any()
    ends_s = [word.end_s for word in track.words]
    assert ends_s == sorted(ends_s)
    assert ends_s[-1] == pytest.approx((track.utterances[1][1]) / MODEL_RATE)
    assert np.array_equal(track.linear16() / np.float32(32768), track.samples)


def test_without_an_aligner_there_are_no_words() -> None:
    assert make_track(default_files(1), None).words == ()


def test_a_package_without_sources_has_speech_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("clients.bench.track.FIXTURES", tmp_path)
    assert default_files(3) == [WARM_UP]
    assert make_track([WARM_UP], EvenAligner()).words == ()
