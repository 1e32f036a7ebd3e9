"""Who takes what no encoding is declared for, and encodings against first bytes."""

import numpy as np
import pytest

from server.codec.audio_format import AudioFormat
from server.codec.intake import open_intake
from server.codec.pool import CodecPool
from server.errors import BadAudio
from tests.server.codec.feeding import CONTAINER, hear, listen, pieces
from tests.server.codec.media import ADTS, MP4, WEBM, muxed, opus_packets, sound_file, speechlike

pytestmark = pytest.mark.asyncio(loop_scope="module")

MP3_FILE = sound_file(speechlike(48_000, 1.0), 48_000, "MP3", "MPEG_LAYER_III")
WAV_FILE = sound_file(speechlike(16_000, 0.3, 2), 16_000, "WAV", "PCM_16")


def id3(n_bytes: int, *, has_footer: bool = False) -> bytes:
    size = bytes(n_bytes >> shift & 0x7F for shift in (21, 14, 7, 0))
    tag = b"ID3\x04\x00" + (b"\x10" if has_footer else b"\x00") + size + bytes(n_bytes)
    return tag + (b"3DI" + bytes(7) if has_footer else b"")


class TestTags:
    @pytest.mark.parametrize("size", [1, 9, 10_000])
    @pytest.mark.parametrize("has_footer", [False, True])
    async def test_a_tag_is_skipped(self, pool: CodecPool, has_footer: bool, size: int) -> None:
        data = id3(300, has_footer=has_footer)
        heard = await listen(open_intake(CONTAINER, True, pool), [*pieces(data + MP3_FILE[:50], [size]), MP3_FILE[50:]])
        np.testing.assert_array_equal(heard.samples, await hear(pool, MP3_FILE))

    async def test_a_tag_with_a_large_picture(self, pool: CodecPool) -> None:
        np.testing.assert_array_equal(
            await hear(pool, id3(3 << 20) + MP3_FILE, size=50_000), await hear(pool, MP3_FILE)
        )

    async def test_a_tag_that_is_too_large(self, pool: CodecPool) -> None:
        with pytest.raises(BadAudio, match=r"an ID3 tag of 16777217 bytes, allowed: 16777216"):
            await hear(pool, b"ID3\x04\x00\x00\x08\x00\x00\x01" + bytes(100))

    async def test_padding_behind_a_tag(self, pool: CodecPool) -> None:
        heard = await hear(pool, id3(20) + bytes(700) + MP3_FILE)
        assert heard.shape[1] == pytest.approx(16_000, abs=1600)

    async def test_a_tag_before_aac(self, pool: CodecPool) -> None:
        data = muxed(speechlike(48_000, 0.5), 48_000, ADTS).data
        np.testing.assert_array_equal(await hear(pool, id3(20) + data), await hear(pool, data))


class TestChannels:
    @pytest.mark.parametrize(
        "data", [WAV_FILE, muxed(speechlike(48_000, 0.3, 2), 48_000, WEBM).data], ids=["wav", "webm"]
    )
    async def test_kept_apart_only_as_declared(self, pool: CodecPool, data: bytes) -> None:
        with pytest.raises(BadAudio, match="has 2 channels, but multichannel audio with channels=1 is declared"):
            await hear(pool, data, mixdown=False)
        assert len(await hear(pool, data, AudioFormat(channels=2), mixdown=False)) == 2
        assert len(await hear(pool, data)) == 1


class TestDeclaredEncodings:
    async def test_opus_in_webm(self, pool: CodecPool) -> None:
        """The commonest mistake: a browser's recorder with the codec's name for an encoding."""
        data = muxed(speechlike(48_000, 0.3), 48_000, WEBM).data
        with pytest.raises(BadAudio, match=r"starts with a EBML header .*leave encoding out"):
            await hear(pool, data, AudioFormat(encoding="opus"))

    async def test_opus_messages_that_are_none(self, pool: CodecPool) -> None:
        audio = AudioFormat(encoding="opus")
        with pytest.raises(BadAudio, match="70000 bytes is no Opus packet: send one packet a message"):
            await hear(pool, [bytes(70_000)], audio)
        with pytest.raises(BadAudio, match="Opus audio cannot be read"):
            await hear(pool, [b"\xff" * 300], audio)

    async def test_opus_with_too_many_channels(self, pool: CodecPool) -> None:
        with pytest.raises(BadAudio, match="channels=3 is declared, but Opus packets hold 1 or 2"):
            await hear(pool, opus_packets(speechlike(48_000, 0.1)), AudioFormat(encoding="opus", channels=3))

    async def test_damage_in_the_middle_is_told_with_its_place(self, pool: CodecPool) -> None:
        packets = opus_packets(speechlike(48_000, 1.0))
        packets[25] = b"\xff" * 200
        with pytest.raises(BadAudio, match=r"the Opus audio is damaged after 0\.5 s: "):
            await hear(pool, packets, AudioFormat(encoding="opus"))

    @pytest.mark.parametrize(
        ("encoding", "data", "message"),
        [
            ("ogg-opus", MP3_FILE, "encoding=ogg-opus is declared, but the audio starts with ff fb .*, not OggS"),
            ("flac", MP3_FILE, "starts with ff fb .*, but FLAC starts with fLaC"),
            ("linear16", WAV_FILE, "starts with a RIFF header .*encoding=linear16 is declared"),
        ],
    )
    async def test_another_container(self, pool: CodecPool, encoding: str, data: bytes, message: str) -> None:
        with pytest.raises(BadAudio, match=message):
            await hear(pool, data, AudioFormat(encoding=encoding, sample_rate=16_000))


class TestContainersThatHoldNoAudioOfOurs:
    async def test_a_codec_that_is_not_taken(self, pool: CodecPool) -> None:
        data = muxed(speechlike(48_000, 0.3), 48_000, WEBM).data.replace(b"A_OPUS", b"A_AC3\x00")
        with pytest.raises(BadAudio, match="holds ac3 audio; allowed: opus, vorbis"):
            await hear(pool, data)

    async def test_a_header_that_never_ends(self, pool: CodecPool) -> None:
        data = muxed(speechlike(48_000, 0.3), 48_000, WEBM).data
        void = b"\xec\x10\x80\x00\x00" + bytes(1 << 23)  # eight megabytes of an element that means nothing
        with pytest.raises(BadAudio, match="more than 1 MiB of headers"):
            await hear(pool, data[: data.index(b"\x1f\x43\xb6\x75")] + void, size=60_000)

    async def test_a_table_larger_than_memory(self, pool: CodecPool) -> None:
        data = bytearray(muxed(speechlike(48_000, 0.5), 48_000, MP4).data)
        sizes = data.index(b"stsz")
        data[sizes + 12 : sizes + 16] = (1 << 27).to_bytes(4, "big")
        data[sizes - 4 : sizes] = (20 + (1 << 29)).to_bytes(4, "big")
        with pytest.raises(BadAudio):
            await hear(pool, bytes(data) + bytes(4 << 20), size=60_000)


class TestRecordingsInARow:
    """A recorder that is stopped and started again on one connection."""

    @pytest.mark.parametrize(
        "data",
        [
            muxed(speechlike(48_000, 1.0), 48_000, WEBM).data,
            sound_file(speechlike(48_000, 1.0), 48_000, "OGG", "OPUS"),
            sound_file(speechlike(48_000, 1.0), 48_000, "FLAC", "PCM_16"),
        ],
        ids=["webm", "ogg", "flac"],
    )
    async def test_both_are_heard(self, pool: CodecPool, data: bytes) -> None:
        assert (await hear(pool, data * 2)).shape[1] == pytest.approx(2 * 16_000, abs=110)
