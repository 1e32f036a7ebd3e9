"""Audio files: formats, mix-down, resampling by blocks, and every way of being no audio."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from clients.transcribe.audio_file import MODEL_RATE, AudioFile, Samples, read_audio, to_linear16
from server.errors import BadAudio


def voice(seconds: float, rate: int) -> Samples:
    """A sweep with a vowel's overtones, so that a resampler or codec cannot hide a gap."""
    t = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * (120 * t + 20 * t**2)
    return (0.2 * np.sin(phase) + 0.1 * np.sin(3 * phase)).astype(np.float32)


def written(path: Path, samples: Samples, rate: int, subtype: str | None = None) -> Path:
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


@pytest.mark.parametrize(
    ("name", "subtype", "tolerance"),
    [
        ("a.wav", "PCM_16", 1e-4),
        ("a.wav", "PCM_24", 1e-6),
        ("a.wav", "FLOAT", 1e-7),
        ("a.wav", "ULAW", 0.02),
        ("a.flac", "PCM_16", 1e-4),
        ("a.mp3", "MPEG_LAYER_III", 0.05),
        ("a.ogg", "VORBIS", 0.05),
        ("a.ogg", "OPUS", 0.05),
    ],
)
def test_formats_give_the_samples_that_were_written(tmp_path: Path, name: str, subtype: str, tolerance: float) -> None:
    rate = 48_000 if subtype == "OPUS" else 22_050
    samples = voice(2.0, rate)
    with AudioFile(written(tmp_path / name, samples, rate, subtype)) as file:
        assert file.rate == rate
        assert file.seconds == pytest.approx(2.0, abs=0.001)
        blocks = list(file.blocks(0.3))
    assert all(len(block) == len(blocks[0]) for block in blocks[:-1])
    read = np.concatenate(blocks)
    assert read.dtype == np.float32
    assert len(read) == len(samples)
    middle = slice(rate // 10, -rate // 10)
    assert np.abs(read[middle] - samples[middle]).max() < tolerance


def test_channels_are_mixed_down(tmp_path: Path) -> None:
    left = voice(0.5, 16_000)
    path = written(tmp_path / "a.wav", np.stack([left, np.zeros_like(left), -left], axis=1), 16_000, "FLOAT")
    assert np.abs(read_audio(path)).max() < 1e-7


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000, 96_000])
def test_resampling_by_blocks_is_the_resampling_of_the_whole(tmp_path: Path, rate: int) -> None:
    samples = voice(3.0, rate)
    with AudioFile(written(tmp_path / "a.wav", samples, rate, "FLOAT")) as file:
        read = np.concatenate(list(file.resampled(block_s=0.037)))
    whole = soxr.resample(samples, rate, MODEL_RATE)
    assert len(read) == len(whole)
    assert np.abs(read - whole).max() < 1e-4


def test_the_rate_of_the_models_is_passed_through(tmp_path: Path) -> None:
    samples = voice(1.0, MODEL_RATE)
    path = written(tmp_path / "a.wav", samples, MODEL_RATE, "FLOAT")
    assert np.array_equal(read_audio(path), samples)


def test_overshoot_is_clipped(tmp_path: Path) -> None:
    path = written(tmp_path / "a.wav", np.array([0.5, 1.5, -2.0], np.float32), MODEL_RATE, "FLOAT")
    assert read_audio(path).tolist() == [0.5, 1.0, -1.0]


def test_linear16_of_16_bit_files_is_exact(tmp_path: Path) -> None:
    values = np.array([-32768, -32767, -1, 0, 1, 12345, 32767], np.int16)
    path = tmp_path / "a.flac"
    soundfile.write(path, values, MODEL_RATE, subtype="PCM_16")
    assert to_linear16(read_audio(path)) == values.astype("<i2").tobytes()
    assert to_linear16(np.array([1.0, -1.0], np.float32)) == struct.pack("<hh", 32767, -32768)


def test_wav_of_unknown_length_is_read_to_its_end(tmp_path: Path) -> None:
    path = written(tmp_path / "a.wav", voice(1.0, 16_000), 16_000)
    data = bytearray(path.read_bytes())
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    assert len(read_audio(path)) == 16_000


def cut(name: str, subtype: str | None = None, rate: int = 16_000) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = written(folder / name, voice(3.0, rate), rate, subtype)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) * 6 // 10 + 1])
        return path

    return make


def content(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def floats(*values: float) -> Callable[[Path], Path]:
    return lambda folder: written(folder / "a.wav", np.array(values, np.float32), 16_000, "FLOAT")


def rate_of(rate: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = written(folder / "a.wav", voice(1.0, 16_000), 16_000)
        data = bytearray(path.read_bytes())
        data[24:28] = struct.pack("<I", rate)
        path.write_bytes(data)
        return path

    return make


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda folder: folder / "a.wav", "no such file", id="missing"),
        pytest.param(lambda folder: folder, "is a directory", id="directory"),
        pytest.param(content("a.wav", b""), "is empty", id="no bytes"),
        pytest.param(content("a.wav", b"no audio at all" * 99), "no audio file", id="wrong magic"),
        pytest.param(content("a.mp3", b"no audio at all" * 99), "no audio file", id="text named mp3"),
        pytest.param(content("a.mp3", b"hi"), "is of no format that is known", id="two letters named mp3"),
        pytest.param(content("a.wav", b"hi"), "is of no format that is known", id="two letters named wav"),
        pytest.param(content("a.raw", b"\0\1" * 999), "raw audio", id="raw"),
        pytest.param(content("a.wav", b"RIFF\x24\0\0\0WAVEfmt "), "no audio file", id="header only"),
        pytest.param(
            lambda folder: written(folder / "a.wav", voice(0, 8000), 8000), "holds no samples", id="no samples"
        ),
        pytest.param(floats(0.1, float("nan"), 0.1), "no number", id="NaN"),
        pytest.param(floats(0.1, float("inf")), "no number", id="infinite"),
        pytest.param(floats(0.1, 12000.0), "must be scaled", id="other scale"),
        pytest.param(rate_of(0), "no audio file", id="rate 0"),
        pytest.param(rate_of(3), "declares 3 samples a second", id="rate 3"),
        pytest.param(cut("a.wav"), "is truncated", id="truncated WAV"),
        pytest.param(cut("a.flac"), "is damaged after", id="truncated FLAC"),
        pytest.param(cut("a.mp3"), "is truncated", id="truncated MP3"),
        pytest.param(cut("a.ogg", "OPUS", 48_000), "is truncated", id="truncated Opus"),
        pytest.param(cut("a.ogg", "VORBIS"), "is truncated", id="truncated Vorbis"),
    ],
)
def test_what_is_no_audio_is_refused_with_its_name(tmp_path: Path, make: Callable[[Path], Path], reason: str) -> None:
    path = make(tmp_path)
    with pytest.raises(BadAudio) as caught:
        read_audio(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_what_came_before_the_damage_has_been_handed_out(tmp_path: Path) -> None:
    handed_out: list[int] = []
    with AudioFile(cut("a.flac")(tmp_path)) as file, pytest.raises(BadAudio, match="is damaged after"):
        handed_out.extend(len(block) for block in file.blocks(0.1))
    assert sum(handed_out) > 16_000
