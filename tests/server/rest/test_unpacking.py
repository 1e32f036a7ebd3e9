"""Compressed bodies: whole ones come out as they were, in bounded pieces; whatever is not whole is refused."""

import gzip
import zlib
from collections.abc import Callable

import pytest

from server.rest.unpacking import PIECE_BYTES, Unpacker
from server.wire.request_errors import BadRequest

DATA = bytes(range(256)) * 1_000


def bare(data: bytes) -> bytes:
    """Without the head and the sum that deflate should have; some clients send it so."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def unpacked(encoding: str, body: bytes, step: int) -> list[bytes]:
    """The pieces of a body that comes in steps."""
    unpacker = Unpacker(encoding)
    pieces = [piece for at in range(0, len(body), step) for piece in unpacker.feed(body[at : at + step])]
    unpacker.finish()
    return pieces


PACKED = [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("Deflate", zlib.compress), ("deflate", bare)]


@pytest.mark.parametrize("step", [1, 100, 1_000_000])
@pytest.mark.parametrize(("encoding", "pack"), [*PACKED, ("", bytes), ("identity", bytes)])
def test_a_whole_body(encoding: str, pack: Callable[[bytes], bytes], step: int) -> None:
    assert b"".join(unpacked(encoding, pack(DATA), step)) == DATA


@pytest.mark.parametrize(("encoding", "pack"), PACKED)
def test_every_body_that_breaks_off(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    whole = pack(DATA[:3_000])
    for end in range(1, len(whole)):
        with pytest.raises(BadRequest, match="breaks off"):
            unpacked(encoding, whole[:end], 64)


@pytest.mark.parametrize(("encoding", "pack"), PACKED)
def test_pieces_are_bounded(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    pieces = unpacked(encoding, pack(bytes(10_000_000)), 1_000_000)
    assert sum(map(len, pieces)) == 10_000_000
    assert max(map(len, pieces)) <= PIECE_BYTES


def test_several_in_a_row() -> None:
    assert b"".join(unpacked("gzip", gzip.compress(b"one ") + gzip.compress(b"two"), 5)) == b"one two"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"no gzip at all"),
        ("gzip", gzip.compress(DATA) + b"more"),
        ("gzip", gzip.compress(DATA)[:-8] + bytes(8)),
        ("deflate", b"\x00no deflate"),
        ("deflate", zlib.compress(DATA) + b"more"),
        ("br", b""),
        ("gzip, gzip", b""),
    ],
)
def test_what_is_not_packed_as_it_says(encoding: str, body: bytes) -> None:
    with pytest.raises(BadRequest):
        unpacked(encoding, body, 1_000)


def test_nothing_is_nothing() -> None:
    assert unpacked("gzip", b"", 1) == []
