"""The fixtures are what their manifest says, and small."""

import hashlib

import numpy as np
import pytest
import soundfile

from tests.support.fixtures import FOLDER, ROOT, Fixture, fixture, fixtures

WARM_UP = ROOT / "asr_model" / "weights" / "warmup.flac"
LIMIT_BYTES = 8_000_000
MP3_SLACK_S = 0.06
"""An MP3 decoder may or may not drop the encoder's delay and padding."""


def name(found: Fixture) -> str:
    return found.path.name


def longest_pause_s(audio: np.ndarray, rate: int) -> float:
    """Longest run of 10 ms windows 40 dB below the loud ones, what lies before and after the speech left out."""
    size = rate // 100
    level = np.sqrt(np.square(audio[: len(audio) // size * size].reshape(-1, size)).mean(1))
    loud = np.flatnonzero(level >= 0.01 * np.percentile(level, 95))
    return float((np.diff(loud).max() - 1) * size / rate)


@pytest.mark.parametrize("found", fixtures(), ids=name)
def test_the_file_is_the_one_described(found: Fixture) -> None:
    assert hashlib.sha256(found.path.read_bytes()).hexdigest() == found.sha256
    audio, rate = soundfile.read(found.path, dtype="float32", always_2d=True)
    info = soundfile.info(found.path)
    assert (rate, audio.shape[1], f"{info.format}/{info.subtype}") == (found.rate, found.channels, found.format)
    assert len(audio) / rate == pytest.approx(found.seconds, abs=MP3_SLACK_S if info.format == "MP3" else 0.0006)
    assert np.isfinite(audio).all()
    assert found.kind == "silence" or 0.02 < np.abs(audio).max() <= 1.1


@pytest.mark.parametrize("found", fixtures(), ids=name)
def test_origin_and_licence_are_given(found: Fixture) -> None:
    assert found.licence in {"Apache-2.0", "CC BY 4.0"}
    assert found.speaker
    assert found.source
    assert (found.licence == "CC BY 4.0") == ("LibriSpeech" in found.source)
    assert bool(found.text) == (found.kind != "silence")
    assert found.text == " ".join(found.text.split())


def test_nothing_lies_there_without_a_row() -> None:
    described = {found.path for found in fixtures()}
    assert len(described) == len(fixtures())
    assert {path for folder in ("synthesised", "real") for path in (FOLDER / folder).rglob("*.*")} == described


def test_all_of_it_is_small() -> None:
    paths = [*(found.path for found in fixtures()), WARM_UP]
    assert sum(path.stat().st_size for path in paths) < LIMIT_BYTES


def test_rates_formats_and_voices_are_varied() -> None:
    sentences = fixtures("sentence")
    assert {found.rate for found in sentences} >= {8000, 16000, 22050, 44100, 48000}
    assert {found.channels for found in sentences} == {1, 2}
    assert {found.format for found in fixtures()} >= {
        "WAV/PCM_16",
        "WAV/FLOAT",
        "WAV/ULAW",
        "FLAC/PCM_16",
        "FLAC/PCM_24",
        "MP3/MPEG_LAYER_III",
        "OGG/OPUS",
    }
    assert len({found.speaker for found in sentences}) >= 8
    assert len({found.speaker for found in fixtures("utterance")}) == 6


def test_words_and_phrases_are_of_the_right_length() -> None:
    assert len(fixtures("word")) >= 8
    assert len(fixtures("phrase")) >= 6
    assert all(len(found.text.split()) == 1 for found in fixtures("word"))
    assert all(2 <= len(found.text.split()) <= 5 for found in fixtures("phrase"))
    assert all(5 <= found.seconds <= 14 for found in fixtures("utterance"))


def test_the_long_one_makes_no_pause() -> None:
    found = fixture("no_pause_47s_16k")
    audio, rate = soundfile.read(found.path, dtype="float32")
    assert found.seconds > 40
    assert longest_pause_s(audio, rate) < 0.15


def test_the_two_utterances_are_two() -> None:
    audio, rate = soundfile.read(fixture("two_utterances_16k").path, dtype="float32")
    assert 1.9 < longest_pause_s(audio, rate) < 2.2


def test_five_is_said_twelve_times() -> None:
    found = fixture("five_twelve_times_16k")
    assert found.text.replace(",", " ").replace(".", " ").split() == ["five"] * 12
    audio, rate = soundfile.read(found.path, dtype="float32")
    level = np.sqrt(np.convolve(np.square(audio), np.ones(rate // 10) / (rate // 10), "same"))
    quiet = level < 0.05 * level.max()
    pieces = np.flatnonzero(np.diff(quiet.astype(np.int8)) == -1)
    assert len(pieces) == 12


def test_silence_is_digital_silence() -> None:
    audio, rate = soundfile.read(fixture("silence_16k").path, dtype="int16")
    assert len(audio) == 2 * rate
    assert not audio.any()


def test_the_warm_up_is_continuous_speech() -> None:
    audio, rate = soundfile.read(WARM_UP, dtype="float32", always_2d=True)
    assert (rate, audio.shape[1]) == (16000, 1)
    assert 5.5 < len(audio) / rate < 6.5
    assert longest_pause_s(audio[:, 0], rate) < 0.15
