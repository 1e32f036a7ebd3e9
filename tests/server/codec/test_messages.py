"""Frames between the service and its codec processes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.codec.messages import (
    MAX_PAYLOAD_BYTES,
    Fault,
    FrameReader,
    Kind,
    StreamOrder,
    frame,
    packed_block,
    unpacked_block,
)
from server.codec.rows import BLOCK_SAMPLES
from tests.server.codec.feeding import pieces

FRAMES = st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=40)), max_size=8)


@given(FRAMES, st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_any_cuts_give_the_same_frames(sent: list[tuple[Kind, int, bytes]], sizes: list[int]) -> None:
    reader, received = FrameReader(), []
    for part in pieces(b"".join(frame(*each) for each in sent), sizes):
        received += list(reader.feed(part))
    assert received == sent


def test_the_largest_block_fits() -> None:
    block = np.random.default_rng(0).uniform(-1, 1, (8, BLOCK_SAMPLES)).astype(np.float32)
    ((kind, number, payload),) = FrameReader().feed(frame(Kind.BLOCK, 7, packed_block(block)))
    assert (kind, number) == (Kind.BLOCK, 7)
    np.testing.assert_array_equal(unpacked_block(payload, 8), block)


@pytest.mark.parametrize("data", [(MAX_PAYLOAD_BYTES + 2).to_bytes(4, "little") + bytes(5), bytes(8) + b"\x63"])
def test_what_is_no_frame(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(FrameReader().feed(data))


@pytest.mark.parametrize("payload", [b"", b"\x02" + bytes(16), b"\x03" + bytes(16), b"\x03" + bytes(13)])
def test_what_is_no_block_of_three_rows(payload: bytes) -> None:
    with pytest.raises(ValueError):
        unpacked_block(payload, 3)


def test_orders_and_faults_arrive_as_they_are() -> None:
    order = StreamOrder(coding="webm", mixdown=True, channels=2)
    assert StreamOrder.unpacked(order.packed()) == order
    fault = Fault(is_bad_audio=True, text="“damaged”")
    assert Fault.unpacked(fault.packed()) == fault
    assert len(Fault(is_bad_audio=False, text="x" * 1_000_000).packed()) < 5000


@pytest.mark.parametrize("payload", [b"", b"[]", b"\xff", b"7"])
def test_what_is_no_fault(payload: bytes) -> None:
    with pytest.raises(ValueError):
        Fault.unpacked(payload)
