"""Bytes through an intake, and what came out when."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import numpy as np

from server.codec.audio_format import AudioFormat
from server.codec.intake import Intake, open_intake
from server.codec.pool import CodecPool
from server.codec.resampler import Resampler
from server.codec.rows import BLOCK_SAMPLES, Block
from server.plan import Samples

CONTAINER = AudioFormat()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What an intake gave."""

    samples: Samples
    """float32 [R, N]; [0, 0] where nothing came."""
    counts: list[int]
    """Samples that had come out after each piece."""


def pieces(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """``data`` cut into pieces of the sizes in turn."""
    cut, turn = list(sizes), 0
    parts = []
    while data:
        size = cut[turn % len(cut)]
        parts.append(data[:size])
        data, turn = data[size:], turn + 1
    return parts


async def listen(intake: Intake, parts: Iterable[bytes]) -> Heard:
    """Everything that comes of the parts; the intake is closed, whatever happens."""
    blocks: list[Block] = []
    counts: list[int] = []
    try:
        for part in parts:
            await _take(intake.feed(part), blocks)
            counts.append(sum(block.shape[1] for block in blocks))
        await _take(intake.finish(), blocks)
    finally:
        await intake.close()
    return Heard(samples=np.concatenate(blocks, axis=1) if blocks else np.zeros((0, 0), np.float32), counts=counts)


async def _take(coming: AsyncIterator[Block], blocks: list[Block]) -> None:
    async for block in coming:
        assert block.dtype == np.float32
        assert 1 <= block.shape[1] <= BLOCK_SAMPLES
        blocks.append(block)


async def hear(
    pool: CodecPool,
    data: bytes | list[bytes],
    audio: AudioFormat = CONTAINER,
    *,
    mixdown: bool = True,
    size: int = 4000,
) -> Samples:
    """The rows of a file, fed in pieces of ``size`` bytes, or of a list of messages."""
    parts = data if isinstance(data, list) else pieces(data, [size])
    heard = await listen(open_intake(audio, mixdown, pool), parts)
    return heard.samples


def at_model_rate(samples: Samples, rate: int, *, mixdown: bool = True) -> Samples:
    """float32 [R, M] of [C, N]: mixed, clipped and resampled in one go."""
    rows = np.mean(samples, axis=0, keepdims=True, dtype=np.float32) if mixdown else samples
    converted = []
    for row in np.clip(rows, -1, 1):
        resampler = Resampler(rate)
        converted.append(np.concatenate([resampler.process(np.ascontiguousarray(row)), resampler.finish()]))
    return np.stack(converted)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what another process does."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # no event tells it here
            await asyncio.sleep(0.01)
