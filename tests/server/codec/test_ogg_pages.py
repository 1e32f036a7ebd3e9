"""Which Ogg streams are whole. Files are FFmpeg's and libsndfile's own; damage is made here."""

import random

import pytest

from server.codec.ogg_pages import OggPages
from server.codec.pool import CodecPool
from server.errors import BadAudio
from tests.server.codec.feeding import hear, pieces
from tests.server.codec.media import LIVE_OGG, muxed, sound_file, speechlike

CUTS = ([1], [3, 29], [4000], [1_000_000])
WRITERS = {
    "live": lambda: muxed(speechlike(48_000, 2.0), 48_000, LIVE_OGG).data,
    "opus": lambda: sound_file(speechlike(48_000, 4.0), 48_000, "OGG", "OPUS"),
    "vorbis": lambda: sound_file(speechlike(48_000, 4.0), 48_000, "OGG", "VORBIS"),
}


@pytest.fixture(scope="module", params=WRITERS)
def data(request: pytest.FixtureRequest) -> bytes:
    return WRITERS[request.param]()


def check(data: bytes, sizes: list[int]) -> None:
    order = OggPages()
    for part in pieces(data, sizes):
        order.check(part)


def pages(data: bytes) -> list[bytes]:
    """Cut where their own sizes say."""
    cut = []
    while data:
        size = 27 + data[26] + sum(data[27 : 27 + data[26]])
        cut.append(data[:size])
        data = data[size:]
    return cut


def zeroed(data: bytes, start: int, size: int = 100) -> bytes:
    return data[:start] + bytes(size) + data[start + size :]


@pytest.mark.parametrize("sizes", CUTS)
class TestWhole:
    def test_files(self, data: bytes, sizes: list[int]) -> None:
        check(data, sizes)

    def test_files_that_follow_one_another(self, data: bytes, sizes: list[int]) -> None:
        check(data + WRITERS["vorbis"]() + data, sizes)

    def test_one_that_does_not_say_where_it_ends(self, data: bytes, sizes: list[int]) -> None:
        check(b"".join(pages(data)[:-1]) + data, sizes)

    def test_the_end_is_missing(self, data: bytes, sizes: list[int]) -> None:
        check(data[: -random.Random(1).randrange(1, 200)], sizes)

    def test_one_that_was_joined_late(self, data: bytes, sizes: list[int]) -> None:
        """As a radio's listener hears it: headers, then whatever is on."""
        cut = pages(data)
        headers = sum(page[6:14] == bytes(8) for page in cut)
        assert len(cut) > headers + 2
        check(b"".join(cut[:headers] + cut[headers + 1 :]), sizes)

    def test_streams_side_by_side(self, data: bytes, sizes: list[int]) -> None:
        one, other = pages(data), pages(WRITERS["live"]())
        mixed = [page for pair in zip(one, other, strict=False) for page in pair]
        check(b"".join(mixed), sizes)

    @pytest.mark.parametrize("tail", [b"TAG" + bytes(125), bytes(40) + b"Ogg"])
    def test_a_tag_at_the_end(self, data: bytes, sizes: list[int], tail: bytes) -> None:
        check(data + tail, sizes)
        check(data + tail + data, sizes)


@pytest.mark.parametrize("sizes", CUTS)
class TestDamage:
    def test_zeros(self, data: bytes, sizes: list[int]) -> None:
        with pytest.raises(BadAudio, match="the Ogg audio is damaged: the checksum of page"):
            check(zeroed(data, len(data) // 2 + 30), sizes)

    def test_a_page_that_starts_otherwise(self, data: bytes, sizes: list[int]) -> None:
        cut = pages(data)
        with pytest.raises(BadAudio, match="a page starts with 4f 67 67 00, not OggS"):
            check(b"".join((*cut[:2], b"Ogg\0", cut[2][4:], *cut[3:])), sizes)

    def test_a_lost_page(self, data: bytes, sizes: list[int]) -> None:
        cut = pages(data)
        del cut[-2]
        with pytest.raises(BadAudio, match=f"page {len(cut)} follows page {len(cut) - 2}"):
            check(b"".join(cut), sizes)

    def test_a_page_twice(self, data: bytes, sizes: list[int]) -> None:
        cut = pages(data)
        with pytest.raises(BadAudio, match=r"page (.*) follows page \1"):
            check(b"".join((*cut[:-1], *cut[-2:])), sizes)

    def test_a_lost_start_of_the_second_file(self, data: bytes, sizes: list[int]) -> None:
        with pytest.raises(BadAudio, match="page 1 is of a stream that has not started"):
            check(data + b"".join(pages(data)[1:]), sizes)
        with pytest.raises(BadAudio, match="page 1 is of a stream that has not started"):
            check(data + zeroed(data, 0, 28), sizes)


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_any_bit_of_a_page_is_looked_at(data: bytes, at: int) -> None:
    changed = bytearray(data)
    page_start = len(pages(data)[0])
    changed[page_start + at] ^= 1 << at % 8
    with pytest.raises(BadAudio, match="damaged"):
        check(bytes(changed), [4000])


@pytest.mark.asyncio(loop_scope="module")
class TestDecoded:
    async def test_a_damaged_file_is_refused(self, pool: CodecPool, data: bytes) -> None:
        with pytest.raises(BadAudio, match="the Ogg audio is damaged"):
            await hear(pool, zeroed(data, len(data) // 2))

    async def test_files_that_follow_one_another(self, pool: CodecPool) -> None:
        one = WRITERS["live"]()
        alone = await hear(pool, one)
        both = await hear(pool, one + muxed(speechlike(48_000, 1.0), 48_000, LIVE_OGG).data)
        assert both.shape[1] - alone.shape[1] == pytest.approx(16_000, abs=500)
