"""How much audio is in the bytes that have arrived, and how much of it has come out: what a decoder holds back.

Counted in samples, not in time: the machine's speed is no part of it. The resampler's share, 45 ms at most, is in it.
"""

import numpy as np
import pytest

from server.codec.audio_format import AudioFormat
from server.codec.flac_framing import FlacFraming
from server.codec.intake import open_intake
from server.codec.pool import CodecPool
from tests.server.codec.feeding import CONTAINER, listen
from tests.server.codec.media import (
    ADTS,
    LIVE_OGG,
    MATROSKA_PCM,
    MP3,
    MP4,
    WEBM,
    Muxing,
    muxed,
    opus_packets,
    sound_file,
    speechlike,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATE = 48_000
SECONDS = 4.0


@pytest.mark.parametrize(
    ("muxing", "held_back_s"),
    [
        pytest.param(WEBM, 0.17, id="webm: clusters of 100 ms"),
        pytest.param(LIVE_OGG, 0.08, id="ogg opus: pages of 20 ms"),
        pytest.param(MP4, 0.12, id="mp4: a fragment a frame"),
        pytest.param(ADTS, 0.10, id="aac"),
        pytest.param(MP3, 0.30, id="mp3: its encoder looks ahead"),
        pytest.param(MATROSKA_PCM, 0.17, id="matroska: clusters of 100 ms"),
    ],
)
async def test_containers(pool: CodecPool, muxing: Muxing, held_back_s: float) -> None:
    written = muxed(speechlike(RATE, SECONDS), RATE, muxing)
    ends = [n_bytes for _, n_bytes in written.growth]
    parts = [written.data[start:end] for start, end in zip([0, *ends], [*ends, len(written.data)], strict=True)]
    heard = await listen(open_intake(CONTAINER, True, pool), parts)
    given_s = np.array([seconds for seconds, _ in written.growth])
    lag_s = given_s - np.array(heard.counts[: len(given_s)]) / 16_000
    assert lag_s.max() < held_back_s


async def test_opus_packets(pool: CodecPool) -> None:
    """Each packet comes out as it arrives, but for the resampler's 40 ms."""
    packets = opus_packets(speechlike(RATE, SECONDS))
    heard = await listen(open_intake(AudioFormat(encoding="opus"), True, pool), packets)
    lag_s = 0.02 * np.arange(1, len(packets) + 1) - np.array(heard.counts) / 16_000
    assert lag_s.max() < 0.05


@pytest.mark.parametrize("audio", [CONTAINER, AudioFormat(encoding="flac")])
async def test_flac_frames(pool: CodecPool, audio: AudioFormat) -> None:
    """As a live encoder sends them: each is heard with its last byte, not with the next one's first."""
    data = sound_file(speechlike(16_000, SECONDS), 16_000, "FLAC", "PCM_16")
    framing = FlacFraming()
    frames = [frame.data for frame in framing.push(data)]
    parts = [data[: data.index(frames[0])], *frames]
    heard = await listen(open_intake(audio, True, pool), parts)
    assert heard.counts == [4096 * n_frames for n_frames in range(len(parts))]
