"""Damaged and hostile bytes: typed errors, and neighbours in the same process hear what they always hear."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from server.codec.audio_format import AudioFormat
from server.codec.intake import open_intake
from server.codec.pool import CodecPool
from server.errors import BadAudio
from server.plan import Samples
from tests.server.codec.feeding import CONTAINER, hear, listen, pieces
from tests.server.codec.media import ADTS, LIVE_OGG, MP4, WEBM, muxed, opus_packets, sound_file, speechlike
from tests.server.codec.mutations import mutated

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECONDS = 0.8
AT_ONCE = 8
"""Streams of the codec process at a time."""
WRITERS: dict[str, Callable[[Samples], bytes]] = {
    "wav": lambda samples: sound_file(samples, 48_000, "WAV", "PCM_24"),
    "flac": lambda samples: sound_file(samples, 48_000, "FLAC", "PCM_16"),
    "ogg-opus": lambda samples: muxed(samples, 48_000, LIVE_OGG).data,
    "ogg-vorbis": lambda samples: sound_file(samples, 48_000, "OGG", "VORBIS"),
    "mp3": lambda samples: sound_file(samples, 48_000, "MP3", "MPEG_LAYER_III"),
    "webm": lambda samples: muxed(samples, 48_000, WEBM).data,
    "mp4": lambda samples: muxed(samples, 48_000, MP4).data,
    "aac": lambda samples: muxed(samples, 48_000, ADTS).data,
}


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    samples = speechlike(48_000, SECONDS, 2)
    return {name: write(samples) for name, write in WRITERS.items()}


async def outcome(pool: CodecPool, parts: list[bytes], audio: AudioFormat, *, mixdown: bool) -> str:
    """``heard`` or ``refused``; anything else is raised."""
    try:
        heard = await listen(open_intake(audio, mixdown, pool), parts)
    except BadAudio:
        return "refused"
    assert np.isfinite(heard.samples).all()
    # resampling overshoots a little
    assert heard.samples.size == 0 or np.abs(heard.samples).max() < 2.0
    return "heard"


async def attack(pool: CodecPool, name: str, files: dict[str, bytes], seeds: range) -> Counter[str]:
    """Many damaged streams of a kind at once, beside a sound one that is heard over and over."""
    neighbour = files["webm"]
    expected = await hear(pool, neighbour)
    others = list(files.values())
    waiting = list(seeds)
    outcomes: Counter[str] = Counter()

    async def one_after_another() -> None:
        while waiting:
            seed = waiting.pop()
            source = random.Random(-seed)
            data = mutated(seed, files[name], source.choice(others))
            audio = AudioFormat(encoding="flac") if name == "flac" and seed % 2 else CONTAINER
            parts = pieces(data, [source.choice((700, 4000, 100_000))])
            outcomes[await outcome(pool, parts, audio, mixdown=bool(seed % 3))] += 1

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one_after_another()) for _ in range(AT_ONCE)]
        while not all(task.done() for task in tasks):
            np.testing.assert_array_equal(await hear(pool, neighbour, size=500), expected)
    assert pool.stats().lost_processes == 0
    return outcomes


class TestMutations:
    @pytest.mark.parametrize("name", WRITERS)
    async def test_a_few_hundred(self, pool: CodecPool, name: str, files: dict[str, bytes]) -> None:
        outcomes = await attack(pool, name, files, range(300))
        assert outcomes["refused"] > 20
        assert outcomes["heard"] > 20

    @pytest.mark.slow
    @pytest.mark.parametrize("name", WRITERS)
    async def test_ten_thousand(self, pool: CodecPool, name: str, files: dict[str, bytes]) -> None:
        await attack(pool, name, files, range(1000, 11_000))

    async def test_opus_packets(self, pool: CodecPool) -> None:
        packets = opus_packets(speechlike(48_000, 0.3))
        audio = AudioFormat(encoding="opus")
        outcomes: Counter[str] = Counter()
        for seed in range(300):
            source = random.Random(seed)
            messages = [
                mutated(seed + at, packet, packets[0]) if source.random() < 0.3 else packet
                for at, packet in enumerate(packets)
            ]
            outcomes[await outcome(pool, messages, audio, mixdown=True)] += 1
        assert outcomes["refused"] > 20
        assert outcomes["heard"] > 20


class TestNoise:
    @pytest.mark.parametrize("audio", [CONTAINER, AudioFormat(encoding="flac"), AudioFormat(encoding="ogg-opus")])
    async def test_noise_is_refused_at_its_first_bytes(self, pool: CodecPool, audio: AudioFormat) -> None:
        for seed in range(50):
            with pytest.raises(BadAudio, match="starts with"):
                await hear(pool, b"\x55" + random.Random(seed).randbytes(100), audio)
