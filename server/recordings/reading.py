"""A recording on the final model: decoded, cut and read at the same time; its pieces in order. On the event loop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from asr_model.transcript import FinalOutput, Word
from server.codec.rows import Block
from server.plan import Samples
from server.recordings.segmenter import SAMPLE_RATE, Segment, Segmenter

PIECES_AT_ONCE: Final = 4
"""Of one recording, waiting or read; decoding goes on as they are answered."""

ReadPiece = Callable[[Samples], Awaitable[FinalOutput]]
"""The words of float32 [N], 16 kHz. Raises MoorageError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What was read of one piece."""

    channel: int
    start_s: float
    """Where the piece begins in the recording."""
    end_s: float
    words: tuple[Word, ...]
    """Times count from the start of the recording."""


async def read_pieces(blocks: AsyncGenerator[Block, None], read_piece: ReadPiece) -> AsyncGenerator[Piece, None]:
    """The pieces of all channels, each as soon as those of its recording before it are there.

    Args:
        blocks: The recording as it is decoded: float32 [R, N], a row per channel. Closed at the end.
        read_piece: Reads one piece; is cancelled when the caller stops.

    Raises:
        MoorageError: The first error of decoding or reading; nothing is left running.
    """
    segmenters: list[Segmenter] = []
    waiting: list[asyncio.Task[Piece]] = []
    try:
        async with aclosing(blocks):
            async for block in blocks:
                segmenters = segmenters or [Segmenter() for _ in block]
                for index, (segmenter, row) in enumerate(zip(segmenters, block, strict=True)):
                    for segment in segmenter.push(row):
                        waiting.append(asyncio.ensure_future(_read(index, segment, read_piece)))
                while waiting and (len(waiting) >= PIECES_AT_ONCE or waiting[0].done()):
                    yield await waiting[0]
                    del waiting[0]
        for index, segmenter in enumerate(segmenters):
            for segment in segmenter.finish():
                waiting.append(asyncio.ensure_future(_read(index, segment, read_piece)))
        while waiting:
            yield await waiting[0]
            del waiting[0]
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _read(channel: int, segment: Segment, read_piece: ReadPiece) -> Piece:
    output = await read_piece(segment.samples)
    start_s = segment.start_s
    return Piece(
        channel=channel,
        start_s=start_s,
        end_s=start_s + segment.samples.size / SAMPLE_RATE,
        words=tuple(replace(word, start_s=word.start_s + start_s, end_s=word.end_s + start_s) for word in output.words),
    )
