"""The length that LAME's header declares, and what becomes of audio beyond it."""

import numpy as np
import pytest

from server.codec.mp3_length import Trim, declared_samples
from server.plan import Samples
from tests.server.codec.media import MP3, muxed, sound_file, speechlike


class TestDeclared:
    @pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000])
    @pytest.mark.parametrize("channels", [1, 2])
    @pytest.mark.parametrize("seconds", [0.31, 1.0, 2.013])
    def test_is_what_was_written(self, rate: int, channels: int, seconds: float) -> None:
        samples = speechlike(rate, seconds, channels)
        data = sound_file(samples, rate, "MP3", "MPEG_LAYER_III")
        assert declared_samples(data[:512]) == samples.shape[1]

    def test_live_streams_declare_nothing(self) -> None:
        assert declared_samples(muxed(speechlike(48_000, 1.0), 48_000, MP3).data[:512]) is None

    @pytest.mark.parametrize("head", [b"", b"\xff", b"Xing", b"\xff\xfb\x90\x00" + bytes(32) + b"Xing" + bytes(300)])
    def test_what_says_nothing(self, head: bytes) -> None:
        assert declared_samples(head) is None


def pushed(declared: int | None, *lengths: int) -> Samples:
    trim, parts, start = Trim(declared), [np.zeros((2, 0), np.float32)], 0
    for length in lengths:
        row = np.arange(start, start + length, dtype=np.float32)
        parts += list(trim.push(np.stack([row, row])))
        start += length
    return np.concatenate(parts, axis=1)


class TestTrim:
    @pytest.mark.parametrize(
        ("declared", "lengths", "kept"),
        [
            (None, (10, 10), 20),
            (25, (10, 10), 20),
            (20, (10, 10), 20),
            (17, (10, 10), 17),
            (20, (10, 10, 10), 20),
            (20, (10, 10, 10, 10), 40),
            (15, (10, 10, 10), 30),
            (5, (10,), 5),
        ],
    )
    def test_the_last_frame_alone_may_be_shortened(
        self, declared: int | None, lengths: tuple[int, ...], kept: int
    ) -> None:
        np.testing.assert_array_equal(pushed(declared, *lengths)[1], np.arange(kept))
