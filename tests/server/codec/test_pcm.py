"""Raw samples: framing, values against independent references, and what no samples are."""

import io
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from server.codec.pcm import SAMPLE_BYTES, PcmDecoder
from server.errors import BadAudio
from server.plan import Samples

FLOATS = ("linear32", "float32", "float64")


def decode(data: bytes, sizes: list[int], encoding: str = "linear16", channels: int = 1) -> Samples:
    decoder, parts, position, turn = PcmDecoder(encoding, channels), [], 0, 0
    parts.append(decoder.decode(b""))
    while position < len(data):
        size = sizes[turn % len(sizes)]
        parts.append(decoder.decode(data[position : position + size]))
        position, turn = position + size, turn + 1
    return np.concatenate(parts, axis=1)


def any_bytes(encoding: str, n_samples: int) -> bytes:
    """Valid samples of an encoding, every code possible."""
    random = np.random.default_rng(n_samples)
    if encoding in FLOATS:
        return random.uniform(-1, 1, n_samples).astype("<f8" if encoding == "float64" else "<f4").tobytes()
    return random.bytes(n_samples * SAMPLE_BYTES[encoding])


class TestFraming:
    @pytest.mark.parametrize("channels", [1, 2, 3, 8])
    @pytest.mark.parametrize("encoding", sorted(SAMPLE_BYTES))
    @pytest.mark.parametrize("sizes", [[1], [3], [7, 1, 64], [1000]])
    def test_any_framing_gives_the_same_bits(self, encoding: str, channels: int, sizes: list[int]) -> None:
        data = any_bytes(encoding, 60 * channels)
        whole = PcmDecoder(encoding, channels).decode(data)
        assert whole.shape == (channels, 60)
        assert whole.dtype == np.float32
        np.testing.assert_array_equal(decode(data, sizes, encoding, channels), whole)

    @given(st.lists(st.integers(-32768, 32767), max_size=50), st.lists(st.integers(1, 9), min_size=1, max_size=5))
    def test_linear16_is_value_by_32768(self, values: list[int], sizes: list[int]) -> None:
        data = np.array(values, dtype="<i2").tobytes()
        assert decode(data, sizes)[0].tolist() == [value / 32768 for value in values]

    def test_a_byte_waits_for_its_other_half(self) -> None:
        decoder = PcmDecoder("linear16", 1)
        assert decoder.decode(b"\x00").tolist() == [[]]
        assert decoder.decode(b"\x40\x01").tolist() == [[0.5]]
        assert decoder.decode(b"\x00").tolist() == [[1 / 32768]]

    def test_channels_are_interleaved_and_wait_for_each_other(self) -> None:
        decoder = PcmDecoder("linear16", 2)
        assert decoder.decode(struct.pack("<3h", 1, 2, 3)).tolist() == [[1 / 32768], [2 / 32768]]
        assert decoder.decode(struct.pack("<h", 4)).tolist() == [[3 / 32768], [4 / 32768]]

    def test_an_incomplete_last_frame_is_dropped(self) -> None:
        assert decode(bytes(7), [7], "linear24").shape == (1, 2)


class TestValues:
    def test_the_ends_of_the_range(self) -> None:
        assert decode(b"\x00\x80\xff\x7f", [4]).tolist() == [[-1.0, 32767 / 32768]]

    @pytest.mark.parametrize(
        ("encoding", "subtype"),
        [("mulaw", "ULAW"), ("alaw", "ALAW"), ("unsigned8", "PCM_U8"), ("linear24", "PCM_24"), ("integer32", "PCM_32")],
    )
    def test_every_code_is_what_libsndfile_reads(self, encoding: str, subtype: str) -> None:
        data = bytes(range(256)) * 3 + np.random.default_rng(0).bytes(48)
        file = io.BytesIO(data)
        expected, _ = soundfile.read(
            file, dtype="float32", samplerate=8000, channels=1, format="RAW", subtype=subtype, endian="LITTLE"
        )
        np.testing.assert_array_equal(decode(data, [len(data)], encoding)[0], expected)

    def test_mulaw_is_what_g711_says(self) -> None:
        """ITU-T G.711, table 2: 128 of the decision values' midpoints, full scale 8031 of 8192."""
        codes = decode(bytes([0xFF, 0xFE, 0xEF, 0x80, 0x00, 0x7F]), [6], "mulaw")[0] * 8192
        assert codes.tolist() == [0, 2, 33, 8031, -8031, 0]

    def test_alaw_is_what_g711_says(self) -> None:
        """ITU-T G.711, table 1: full scale 4032 of 4096, the smallest value half a step."""
        codes = decode(bytes([0xD5, 0x55, 0xAA, 0x2A]), [4], "alaw")[0] * 4096
        assert codes.tolist() == [1, -1, 4032, -4032]

    @pytest.mark.parametrize("encoding", FLOATS)
    def test_floats_are_taken_as_they_are(self, encoding: str) -> None:
        values = [0.0, -1.0, 1.0, 0.125, 1.5]
        data = np.array(values, "<f8" if encoding == "float64" else "<f4").tobytes()
        assert decode(data, [5], encoding).tolist() == [values]


class TestFloatsThatAreNoSamples:
    @pytest.mark.parametrize("encoding", FLOATS)
    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_no_number(self, encoding: str, value: float) -> None:
        data = np.array([0.0, value], "<f8" if encoding == "float64" else "<f4").tobytes()
        with pytest.raises(BadAudio, match="no finite number"):
            decode(data, [len(data)], encoding)

    def test_integers_taken_for_floats(self) -> None:
        with pytest.raises(BadAudio, match=r"a float sample of 32767: send samples scaled to \[-1, 1\]"):
            decode(np.array([32767], "<f4").tobytes(), [4], "linear32")
