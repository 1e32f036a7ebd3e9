"""Every kind of audio against an independent reading of the whole file, in any cuts."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from server.codec.audio_format import AudioFormat
from server.codec.crc16 import crc16
from server.codec.flac_framing import MIN_FRAME_BYTES, FlacFraming
from server.codec.intake import open_intake
from server.codec.pool import CodecPool
from server.errors import BadAudio
from server.plan import Samples
from tests.server.codec.feeding import CONTAINER, at_model_rate, hear, listen, pieces
from tests.server.codec.media import (
    ADTS,
    LATE_INDEX_MP4,
    LIVE_OGG,
    MATROSKA_PCM,
    MP3,
    MP4,
    WEBM,
    Muxing,
    muxed,
    opus_packets,
    read_file,
    read_sound_file,
    sound_file,
    speechlike,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

Writer = Callable[[Samples], bytes]
FLAC = AudioFormat(encoding="flac")
OPUS = AudioFormat(encoding="opus")


class TestBitExact:
    """Nothing is lost in WAV and FLAC, so the bits are those of libsndfile's reading."""

    @pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"])
    @pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2), (8_000, 3)])
    @pytest.mark.parametrize("container", ["WAV", "WAVEX", "RF64"])
    async def test_wav(self, pool: CodecPool, container: str, subtype: str, rate: int, channels: int) -> None:
        data = sound_file(speechlike(rate, 0.5, channels), rate, container, subtype)
        expected, read_rate = read_sound_file(data)
        assert read_rate == rate
        heard = await hear(pool, data, AudioFormat(channels=channels), mixdown=False)
        np.testing.assert_array_equal(heard, at_model_rate(expected, rate, mixdown=False))

    @pytest.mark.parametrize("audio", [CONTAINER, FLAC])
    @pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
    @pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2), (96_000, 1), (48_000, 8)])
    async def test_flac(self, pool: CodecPool, audio: AudioFormat, subtype: str, rate: int, channels: int) -> None:
        data = sound_file(speechlike(rate, 0.7, channels), rate, "FLAC", subtype)
        expected, _ = read_sound_file(data)
        declared = AudioFormat(encoding=audio.encoding, channels=channels)
        heard = await hear(pool, data, declared, mixdown=False)
        np.testing.assert_array_equal(heard, at_model_rate(expected, rate, mixdown=False))

    async def test_pcm_in_matroska(self, pool: CodecPool) -> None:
        samples = speechlike(16_000, 1.0, 2)
        data = muxed(samples, 16_000, MATROSKA_PCM).data
        expected, _ = read_file(data)
        heard = await hear(pool, data, AudioFormat(channels=2), mixdown=False)
        np.testing.assert_array_equal(heard, expected)
        assert np.abs(heard - samples).max() <= 1 / 32768

    async def test_channels_are_mixed_to_their_mean(self, pool: CodecPool) -> None:
        data = sound_file(speechlike(16_000, 0.5, 2), 16_000, "FLAC", "PCM_16")
        left, right = read_sound_file(data)[0]
        np.testing.assert_array_equal((await hear(pool, data))[0], (left + right) / 2)


class TestLossy:
    """Another decoder of the same bits: libsndfile's libopus, libvorbis and mpg123."""

    @pytest.mark.parametrize("encoding", [None, "ogg-opus", "opus"])
    @pytest.mark.parametrize("channels", [1, 2])
    async def test_ogg_opus(self, pool: CodecPool, encoding: str | None, channels: int) -> None:
        data = sound_file(speechlike(48_000, 2.013, channels), 48_000, "OGG", "OPUS")
        await self._compare(pool, data, AudioFormat(encoding=encoding, channels=channels), tolerance=1e-3)

    async def test_ogg_vorbis(self, pool: CodecPool) -> None:
        await self._compare(pool, sound_file(speechlike(22_050, 2.013), 22_050, "OGG", "VORBIS"), tolerance=1e-4)

    @pytest.mark.parametrize("rate", [16_000, 44_100])
    async def test_mp3(self, pool: CodecPool, rate: int) -> None:
        """With LAME's header, which says how much of the first and last frame is padding."""
        data = sound_file(speechlike(rate, 2.013), rate, "MP3", "MPEG_LAYER_III")
        await self._compare(pool, data, tolerance=1e-3)

    async def _compare(self, pool: CodecPool, data: bytes, audio: AudioFormat = CONTAINER, *, tolerance: float) -> None:
        samples, rate = read_sound_file(data)
        expected = at_model_rate(samples, rate, mixdown=False)
        heard = await hear(pool, data, AudioFormat(encoding=audio.encoding, channels=len(samples)), mixdown=False)
        assert heard.shape == expected.shape
        assert np.abs(heard - expected).max() < tolerance

    @pytest.mark.parametrize("muxing", [WEBM, LIVE_OGG, MP4, ADTS, MP3], ids=lambda muxing: muxing.container)
    @pytest.mark.parametrize("channels", [1, 2])
    async def test_streaming_equals_reading_the_whole_file(
        self, pool: CodecPool, muxing: Muxing, channels: int
    ) -> None:
        data = muxed(speechlike(48_000, 2.0, channels), 48_000, muxing).data
        samples, rate = read_file(data)
        heard = await hear(pool, data, AudioFormat(channels=channels), mixdown=False, size=333)
        np.testing.assert_array_equal(heard, at_model_rate(samples, rate, mixdown=False))

    @pytest.mark.parametrize("muxing", [WEBM, LIVE_OGG, MP4, ADTS, MP3], ids=lambda muxing: muxing.container)
    async def test_the_words_are_where_they_were(self, pool: CodecPool, muxing: Muxing) -> None:
        """A codec's delay is at most a frame or two: the clock of the stream stays right."""
        samples = speechlike(48_000, 2.0)
        heard = (await hear(pool, muxed(samples, 48_000, muxing).data))[0]
        original = at_model_rate(samples, 48_000)[0]
        spectrum = np.fft.rfft(heard, 1 << 17) * np.conj(np.fft.rfft(original, 1 << 17))
        lag = int(np.argmax(np.fft.irfft(spectrum)))
        lag -= (1 << 17) if lag > 1 << 16 else 0
        assert 0 <= lag <= 0.07 * 16_000
        assert len(heard) == pytest.approx(len(original), abs=0.1 * 16_000)

    @pytest.mark.parametrize("channels", [1, 2])
    async def test_opus_packets(self, pool: CodecPool, channels: int) -> None:
        samples = speechlike(48_000, 2.0, channels)
        packets = opus_packets(samples)
        heard = await hear(pool, packets, AudioFormat(encoding="opus", channels=channels), mixdown=False)
        assert heard.shape == (channels, len(packets) * 320)
        # what the encoder looked ahead, 6.5 ms, is not known from packets alone, and so not skipped
        original = at_model_rate(samples, 48_000, mixdown=False)
        assert np.corrcoef(heard[0, 104 : 104 + 31_000], original[0, :31_000])[0, 1] > 0.98


class TestCuts:
    """Any cuts give the same bits, and what has come out depends on the bytes that went in alone (I7)."""

    FILES: tuple[tuple[str, Writer], ...] = (
        ("wav", lambda samples: sound_file(samples, 48_000, "WAV", "PCM_24")),
        ("flac", lambda samples: sound_file(samples, 48_000, "FLAC", "PCM_16")),
        ("ogg", lambda samples: sound_file(samples, 48_000, "OGG", "OPUS")),
        ("vorbis", lambda samples: sound_file(samples, 48_000, "OGG", "VORBIS")),
        ("mp3", lambda samples: sound_file(samples, 48_000, "MP3", "MPEG_LAYER_III")),
        ("webm", lambda samples: muxed(samples, 48_000, WEBM).data),
        ("mp4", lambda samples: muxed(samples, 48_000, MP4).data),
        ("adts", lambda samples: muxed(samples, 48_000, ADTS).data),
    )

    @pytest.mark.parametrize(("name", "write"), FILES, ids=[name for name, _ in FILES])
    async def test_same_bits(self, pool: CodecPool, name: str, write: Writer) -> None:
        data = write(speechlike(48_000, 1.3))
        small = max(1, len(data) // 500)
        whole = await listen(open_intake(CONTAINER, True, pool), [data])
        fine = await listen(open_intake(CONTAINER, True, pool), pieces(data, [small]))
        np.testing.assert_array_equal(fine.samples, whole.samples)
        for sizes in ([997], [1, 5000], [13, 1, 60, 3]):
            coarse = await listen(open_intake(CONTAINER, True, pool), pieces(data, [small * size for size in sizes]))
            np.testing.assert_array_equal(coarse.samples, whole.samples)
            ends = np.cumsum([len(part) for part in pieces(data, [small * size for size in sizes])])
            assert coarse.counts == [fine.counts[-(-int(end) // small) - 1] for end in ends]

    async def test_flac_cut_where_a_checksum_fits_by_chance(self, pool: CodecPool) -> None:
        """One place in 65,536 looks like the end of a frame; what is decoded up to there is none, and is not heard."""
        noise = np.random.default_rng(0).uniform(-1, 1, (1, 300_000)).astype(np.float32)
        data = sound_file(noise, 48_000, "FLAC", "PCM_24")
        framing = FlacFraming()
        frames = [frame.data for frame in framing.push(data)]
        of_byte = [crc16(bytes([byte])) for byte in range(256)]
        cuts, start = [], data.index(frames[0])
        for frame in frames:
            state = 0
            for at, byte in enumerate(frame, 1):
                state = (state << 8) & 0xFFFF ^ of_byte[state >> 8 ^ byte]
                if state == 0 and MIN_FRAME_BYTES <= at < len(frame):
                    cuts.append(start + at)
            start += len(frame)
        assert len(cuts) > 3
        ends = [0, *cuts, len(data)]
        parts = [data[start:end] for start, end in pairwise(ends)]
        np.testing.assert_array_equal(await hear(pool, parts, FLAC), await hear(pool, data, FLAC))

    @pytest.mark.parametrize("head", [1, 2, 3, 5, 11, 12, 13, 45])
    @pytest.mark.parametrize("write", [write for _, write in FILES], ids=[name for name, _ in FILES])
    async def test_a_header_in_bits_and_pieces(self, pool: CodecPool, head: int, write: Writer) -> None:
        data = write(speechlike(48_000, 0.3))
        parts = [*pieces(data[:200], [head]), data[200:]]
        heard = await listen(open_intake(CONTAINER, True, pool), parts)
        np.testing.assert_array_equal(heard.samples, await hear(pool, data))


class TestEnds:
    @pytest.mark.parametrize(("name", "write"), TestCuts.FILES, ids=[name for name, _ in TestCuts.FILES])
    @pytest.mark.parametrize("share", [0.97, 0.5])
    async def test_what_is_cut_off_loses_the_last_packet_alone(
        self, pool: CodecPool, name: str, write: Writer, share: float
    ) -> None:
        data = write(speechlike(48_000, 5.0))
        whole = (await hear(pool, data))[0]
        part = (await hear(pool, data[: int(len(data) * share)]))[0]
        assert len(part) <= len(whole)
        if name in ("wav", "flac", "mp3", "adts"):
            assert len(part) == pytest.approx(share * len(whole), abs=0.25 * 16_000)
        # the end of a resampler is not what its middle would have been
        same = max(0, len(part) - 1600)
        np.testing.assert_allclose(part[:same], whole[:same], atol=1e-6)

    async def test_no_bytes_are_no_audio(self, pool: CodecPool) -> None:
        for audio in (CONTAINER, FLAC, OPUS, AudioFormat(encoding="linear16", sample_rate=8000)):
            heard = await listen(open_intake(audio, True, pool), [])
            assert heard.samples.shape[1] == 0
            heard = await listen(open_intake(audio, True, pool), [b""])
            assert heard.samples.shape[1] == 0

    async def test_a_header_alone_is_no_audio(self, pool: CodecPool) -> None:
        data = muxed(speechlike(48_000, 1.0), 48_000, WEBM).data
        heard = await listen(open_intake(CONTAINER, True, pool), [data[: data.index(b"\x1f\x43\xb6\x75")]])
        assert heard.samples.shape[1] == 0

    async def test_mp4_with_its_index_at_the_end(self, pool: CodecPool) -> None:
        data = muxed(speechlike(48_000, 1.0), 48_000, LATE_INDEX_MP4).data
        with pytest.raises(BadAudio, match=r"index \(moov\) after its audio.*-movflags \+faststart"):
            await hear(pool, data)
