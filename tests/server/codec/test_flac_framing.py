"""Frames out of FLAC bytes: as early as can be, the same in any cuts, nothing lost or made up."""

import random

import numpy as np
import pytest

from server.codec.flac_framing import FlacFraming, crc8, is_frame_header
from server.errors import BadAudio
from tests.server.codec.feeding import pieces
from tests.server.codec.media import sound_file, speechlike

DATA = sound_file(speechlike(16_000, 1.0), 16_000, "FLAC", "PCM_16")
HEADER_BYTES = DATA.index(b"\xff\xf8", 42)


def frames_of(parts: list[bytes]) -> tuple[list[bytes], bytes | None]:
    """The frames that are certain, and what may be the last one."""
    framing = FlacFraming()
    frames = [frame.data for part in parts for frame in framing.push(part)]
    candidate = framing.candidate()
    return frames, candidate.data if candidate else None


def live_frames(parts: list[bytes], known: list[bytes] | None = None) -> list[bytes]:
    """As the decoder takes them: a candidate is believed if it is one of the known frames, or if none are known."""
    framing, frames = FlacFraming(), []
    for part in parts:
        frames += [frame.data for frame in framing.push(part)]
        candidate = framing.candidate()
        if candidate is not None and (known is None or candidate.data in known):
            framing.accept_candidate()
            frames.append(candidate.data)
    return frames


FRAMES = live_frames([DATA])


class TestFrames:
    def test_they_are_the_whole_audio(self) -> None:
        assert b"".join(FRAMES) == DATA[HEADER_BYTES:]
        assert len(FRAMES) == -(-16_000 // 4096)

    @pytest.mark.parametrize("sizes", [[1], [2, 3], [100], [1000, 1], [len(DATA) - 1, 1]])
    def test_any_cuts_give_the_same(self, sizes: list[int]) -> None:
        assert live_frames(pieces(DATA, sizes), FRAMES) == FRAMES
        frames, last = frames_of(pieces(DATA, sizes))
        assert [*frames, last] == FRAMES

    def test_a_frame_is_whole_with_its_last_byte(self) -> None:
        """Not with the next frame's first: live audio would be a frame late, a quarter of a second here."""
        framing, position = FlacFraming(), HEADER_BYTES
        assert framing.push(DATA[:HEADER_BYTES]) == []
        for frame in FRAMES:
            assert framing.push(frame[:-1]) == []
            assert framing.candidate() is None
            assert framing.push(frame[-1:]) == []
            candidate = framing.candidate()
            assert candidate is not None
            assert candidate.data == frame
            framing.accept_candidate()
            position += len(frame)
        assert position == len(DATA)

    def test_a_candidate_that_was_none_does_no_harm(self) -> None:
        """A checksum may fit by chance in the middle of a frame; the decoder does not accept that."""
        framing = FlacFraming()
        framing.push(DATA[:HEADER_BYTES] + FRAMES[0])
        assert framing.candidate() is not None
        frames = framing.push(FRAMES[1][:50])  # not accepted: found again by the next header
        assert [frame.data for frame in frames] == FRAMES[:1]

    def test_start_codes_within_a_frame_are_no_starts(self) -> None:
        noise = np.random.default_rng(0).integers(-(1 << 23), 1 << 23, (1, 400_000)) / (1 << 23)
        data = sound_file(noise.astype(np.float32), 48_000, "FLAC", "PCM_24")
        assert data.count(b"\xff\xf8") > -(-400_000 // 4096)
        assert b"".join(live_frames(pieces(data, [1499]))) == data[data.index(b"\xff\xf8", 42) :]


class TestWhatMayFollow:
    @pytest.mark.parametrize("size", [1, 7, 10_000_000])
    def test_another_file(self, size: int) -> None:
        other = sound_file(speechlike(16_000, 1.0, seed=1), 16_000, "FLAC", "PCM_16")
        known = FRAMES + live_frames([other])
        assert live_frames(pieces(DATA + other, [size]), known) == known

    @pytest.mark.parametrize("size", [1, 7, 10_000_000])
    @pytest.mark.parametrize(
        "tag", [b"TAG" + bytes(125), b"ID3\x04\x00" + bytes(500), b"APETAGEX" + bytes(64)], ids=lambda tag: tag[:3]
    )
    def test_a_tag(self, tag: bytes, size: int) -> None:
        assert live_frames(pieces(DATA + tag, [size]), FRAMES) == FRAMES

    def test_nothing_else(self) -> None:
        with pytest.raises(BadAudio, match="a frame starts with 55 55"):
            live_frames([DATA, b"\x55" * 100])


class TestRefusals:
    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_no_flac(self, size: int) -> None:
        with pytest.raises(BadAudio, match="but FLAC starts with fLaC"):
            frames_of(pieces(b"fLaX" + DATA[4:], [size]))

    def test_no_stream_info(self) -> None:
        with pytest.raises(BadAudio, match="does not start with its stream info"):
            frames_of([b"fLaC\x04\x00\x00\x22" + bytes(60)])

    def test_metadata_is_skipped_and_bounded(self) -> None:
        block = b"\x06" + (1_000_000).to_bytes(3, "big") + bytes(1_000_000)
        info = bytearray(DATA[:42])
        info[4] &= 0x7F
        framing = FlacFraming()
        framing.push(bytes(info))
        for _ in range(16):
            for part in pieces(block, [60_000]):
                assert framing.push(part) == []
                assert len(framing._data) < 60_001
        with pytest.raises(BadAudio, match="more than 16 MiB of metadata"):
            framing.push(block)

    def test_damage_is_found_within_a_frame_or_two(self) -> None:
        """Not after a minute of silence: no frame is longer than its samples are without compression."""
        damaged = bytearray(DATA)
        damaged[HEADER_BYTES + len(FRAMES[0]) + 100] ^= 1
        soon = HEADER_BYTES + len(FRAMES[0]) + 10_000
        with pytest.raises(BadAudio, match="damaged: no frame ends within"):
            frames_of(pieces(bytes(damaged[:soon]), [500]))

    def test_any_damage_is_refused_or_found_later(self) -> None:
        source = random.Random(0)
        for _ in range(300):
            damaged = bytearray(DATA)
            damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
            try:
                frames = live_frames(pieces(bytes(damaged), [700]))
            except BadAudio:
                continue
            assert set(frames) - set(FRAMES) <= {FRAMES[-1]} or len(frames) <= len(FRAMES)


class TestHeaders:
    @pytest.mark.parametrize("frame", FRAMES)
    def test_frames_start_with_one(self, frame: bytes) -> None:
        known = [is_frame_header(frame[:n_bytes]) for n_bytes in range(2, 17)]
        assert None in known
        assert known[-1] is True
        assert False not in known

    def test_every_damage_of_one_shows(self) -> None:
        head = FRAMES[1][:16]
        n_bytes = next(n for n in range(2, 17) if is_frame_header(head[:n]))
        for bit in range(16, 8 * n_bytes):
            damaged = bytearray(head)
            damaged[bit // 8] ^= 0x80 >> bit % 8
            assert not is_frame_header(bytes(damaged))

    def test_the_long_ones(self) -> None:
        """All optional parts: a number of 7 bytes, block size and rate in 16 bits each."""
        head = bytes([0xFF, 0xF9, 0x7D, 0x08, 0xFE, *[0x80] * 6, 1, 2, 3, 4])
        assert is_frame_header(head) is None
        assert is_frame_header(head + bytes([crc8(head)])) is True
        assert is_frame_header(head + bytes([crc8(head) ^ 1])) is False

    def test_a_number_that_is_none(self) -> None:
        assert is_frame_header(bytes([0xFF, 0xF8, 0x19, 0x08, 0x80]) + bytes(11)) is False
