"""Raw audio through an intake: the same samples in any cuts, mixed or kept apart, and nothing but samples."""

import struct

import numpy as np
import pytest

from server.codec.audio_format import PCM_ENCODINGS, AudioFormat
from server.codec.intake import open_intake
from server.codec.pool import CodecPool
from server.errors import BadAudio
from tests.server.codec.feeding import at_model_rate, hear, listen, pieces
from tests.server.codec.media import speechlike

FLOATS = ("linear32", "float32")


def raw(encoding: str, channels: int, n_frames: int) -> bytes:
    random = np.random.default_rng(channels)
    if encoding in FLOATS:
        return random.uniform(-1, 1, channels * n_frames).astype("<f4").tobytes()
    return random.bytes(channels * n_frames * (2 if encoding == "linear16" else 1))


@pytest.mark.parametrize("encoding", PCM_ENCODINGS)
@pytest.mark.parametrize("channels", [1, 2, 8])
@pytest.mark.parametrize("mixdown", [True, False])
async def test_any_cuts_give_the_same_bits(encoding: str, channels: int, mixdown: bool) -> None:
    audio = AudioFormat(encoding=encoding, sample_rate=24_000, channels=channels)
    data = raw(encoding, channels, 1500)
    whole = await listen(open_intake(audio, mixdown, CodecPool()), [data])
    assert whole.samples.shape == (1 if mixdown else channels, 1000)
    for sizes in ([999], [1, 10, 3], [5001, 1]):
        heard = await listen(open_intake(audio, mixdown, CodecPool()), pieces(data, sizes))
        np.testing.assert_array_equal(heard.samples, whole.samples)


@pytest.mark.parametrize("rate", [4_000, 8_000, 44_100, 96_000])
async def test_is_the_resampled_audio(rate: int) -> None:
    samples = speechlike(rate, 0.5, 2)
    data = samples.T.astype("<f4").tobytes()
    audio = AudioFormat(encoding="linear32", sample_rate=rate, channels=2)
    for mixdown in (True, False):
        heard = await hear(CodecPool(), data, audio, mixdown=mixdown, size=777)
        np.testing.assert_array_equal(heard, at_model_rate(samples, rate, mixdown=mixdown))


async def test_an_incomplete_last_sample_is_dropped() -> None:
    audio = AudioFormat(encoding="linear16", sample_rate=16_000, channels=2)
    assert (await hear(CodecPool(), struct.pack("<7hB", *range(7), 0), audio)).shape == (1, 3)


async def test_floats_are_checked_before_they_are_resampled() -> None:
    audio = AudioFormat(encoding="linear32", sample_rate=48_000)
    with pytest.raises(BadAudio, match="no finite number"):
        await hear(CodecPool(), np.array([0, np.inf, 0], "<f4").tobytes(), audio)


async def test_a_huge_message_comes_out_in_blocks() -> None:
    audio = AudioFormat(encoding="mulaw", sample_rate=8_000)
    intake = open_intake(audio, True, CodecPool())
    lengths = [block.shape[1] async for block in intake.feed(bytes(1_000_000))]
    assert max(lengths) <= 16_384  # of a piece of 8 KiB, twice as many at the models' rate
    assert len(lengths) > 100
