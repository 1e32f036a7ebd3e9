"""Which MP4 files can be decoded as they come."""

import struct

import pytest

from server.codec.mp4_boxes import BoxOrder
from server.errors import BadAudio
from tests.server.codec.feeding import pieces

CUTS = ([1], [3, 9], [1000])


def box(kind: bytes, size: int) -> bytes:
    return struct.pack(">I4s", size + 8, kind) + bytes(size)


def long_box(kind: bytes, size: int) -> bytes:
    return struct.pack(">I4sQ", 1, kind, size + 16) + bytes(size)


def check(data: bytes, sizes: list[int]) -> None:
    order = BoxOrder()
    for part in pieces(data, sizes):
        order.check(part)


@pytest.mark.parametrize("sizes", CUTS)
def test_the_index_first(sizes: list[int]) -> None:
    check(box(b"ftyp", 20) + long_box(b"free", 100) + box(b"moov", 300) + box(b"mdat", 300), sizes)


@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("data", [box(b"mdat", 300), long_box(b"mdat", 300), b"\x00\x00\x00\x00mdat" + bytes(100)])
def test_the_audio_first(data: bytes, sizes: list[int]) -> None:
    with pytest.raises(BadAudio, match=r"index \(moov\) after its audio"):
        check(box(b"ftyp", 20) + box(b"free", 0) + data, sizes)


@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize(
    "data", [bytes(100), b"\x00\x00\x00\x07free" + bytes(100), b"\x00\x00\x00\x01free" + bytes(100)]
)
def test_sizes_that_no_box_has_are_left_to_the_demuxer(data: bytes, sizes: list[int]) -> None:
    check(box(b"ftyp", 20) + data + box(b"mdat", 5), sizes)
