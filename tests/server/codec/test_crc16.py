"""FLAC's checksum against the polynomial's long division."""

from hypothesis import given
from hypothesis import strategies as st

from server.codec.crc16 import POLYNOMIAL, crc16


def bit_by_bit(data: bytes) -> int:
    state = 0
    for byte in data:
        state ^= byte << 8
        for _ in range(8):
            state = (state << 1) ^ POLYNOMIAL if state & 0x8000 else state << 1
            state &= 0xFFFF
    return state


@given(st.binary(max_size=700))
def test_is_the_remainder(data: bytes) -> None:
    assert crc16(data) == bit_by_bit(data)


@given(st.binary(max_size=600), st.lists(st.integers(0, 600), max_size=4))
def test_goes_on_from_any_cut(data: bytes, cuts: list[int]) -> None:
    state, start = 0, 0
    for cut in [*sorted(cuts), len(data)]:
        state, start = crc16(data[start:cut], state), max(start, min(cut, len(data)))
    assert state == bit_by_bit(data)


def test_of_a_known_word() -> None:
    assert crc16(b"123456789") == 0xFEE8  # CRC-16/UMTS in the catalogue of Greg Cook


@given(st.binary(min_size=1, max_size=300))
def test_with_its_checksum_behind_it_is_zero(data: bytes) -> None:
    assert crc16(data + crc16(data).to_bytes(2, "big")) == 0
