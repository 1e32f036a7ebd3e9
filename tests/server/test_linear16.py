"""Raw audio: framing, values, and what is not raw audio."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import BadAudio
from server.linear16 import CONTAINERS, Linear16Decoder


def decode(data: bytes, sizes: list[int]) -> list[float]:
    decoder, samples, position, turn = Linear16Decoder(), [], 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        samples += decoder.decode(data[position : position + size]).tolist()
        position, turn = position + size, turn + 1
    return samples


class TestFraming:
    @given(st.lists(st.integers(-32768, 32767), max_size=50), st.lists(st.integers(1, 9), min_size=1, max_size=5))
    def test_any_framing_gives_the_same_samples(self, values: list[int], sizes: list[int]) -> None:
        data = np.array(values, dtype="<i2").tobytes()
        if data[:4] in CONTAINERS:
            return
        assert decode(data, sizes) == [value / 32768 for value in values]

    def test_a_byte_waits_for_its_other_half(self) -> None:
        decoder = Linear16Decoder()
        assert decoder.decode(b"\x00").tolist() == []
        assert decoder.decode(b"\x40\x01").tolist() == [0.5]
        assert decoder.decode(b"\x00").tolist() == [1 / 32768]

    def test_nothing(self) -> None:
        assert Linear16Decoder().decode(b"").tolist() == []

    def test_the_ends_of_the_range(self) -> None:
        samples = Linear16Decoder().decode(b"\x00\x80\xff\x7f")
        assert samples.dtype == np.float32
        assert samples.tolist() == [-1.0, 32767 / 32768]


class TestMagic:
    @pytest.mark.parametrize("size", [1, 2, 3, 4, 44])
    @pytest.mark.parametrize("magic", sorted(CONTAINERS))
    def test_a_container_is_refused_however_it_is_cut(self, magic: bytes, size: int) -> None:
        name, kind = CONTAINERS[magic]
        with pytest.raises(BadAudio) as caught:
            decode(magic + bytes(40), [size])
        assert str(caught.value) == (
            f"the audio starts with a {name} header ({kind}): send raw linear16 samples, little-endian, mono, "
            "without any header"
        )

    def test_only_at_the_very_start(self) -> None:
        assert len(decode(b"\x00\x00RIFF", [2])) == 3

    def test_almost_a_magic(self) -> None:
        assert len(decode(b"RIFfRIFF", [3])) == 4
