"""The audio of a request, decoded as it arrives: bounded, paid for by the client's key, hashed."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from aiohttp import BodyPartReader, web

from server.access.access import Grant
from server.clock import Clock
from server.codec.intake import Intake
from server.codec.rows import Block
from server.errors import BadAudio, SequenceTooLong
from server.recordings.segmenter import SAMPLE_RATE
from server.rest.bodies import unpacker_of
from server.rest.patience import Patience
from server.rest.unpacking import Unpacker
from server.wire.request_errors import BodyTooLarge

CHUNK_BYTES: Final = 65_536


@dataclass(slots=True, kw_only=True)
class RecordingBody:
    """One recording on its way in. As a context it gives back what it has taken of the service.

    Args:
        intake: Decodes it.
        grant: Whose budget it takes.
        clock: Time.
        patience: With its sender.
        max_bytes: Of the audio as it comes.
        max_s: Of the audio.
    """

    intake: Intake
    grant: Grant
    clock: Clock
    patience: Patience
    max_bytes: int
    max_s: float
    duration_s: float = field(default=0.0, init=False)
    """Of the audio so far."""
    _n_bytes: int = field(default=0, init=False)
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256, init=False)

    async def __aenter__(self) -> "RecordingBody":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.grant.release()
        await self.intake.close()

    @property
    def sha256(self) -> str:
        """Of the bytes so far."""
        return self._digest.hexdigest()

    async def blocks(self, source: web.Request | BodyPartReader) -> AsyncGenerator[Block, None]:
        """The whole recording: float32 [R, N], 16 kHz.

        Raises:
            BadAudio: It is no audio, is damaged, or there is none in it.
            SequenceTooLong: It lasts longer than is allowed.
            BodyTooLarge, BodyTooSlow, BadRequest: As it says.
            ServiceError: The decoder is gone.
        """
        unpacker = unpacker_of(source) if isinstance(source, web.Request) else Unpacker("")
        while packed := await self._chunk(source):
            for chunk in unpacker.feed(packed):
                self._count(chunk)
                async with aclosing(self.intake.feed(chunk)) as blocks:
                    async for block in blocks:
                        yield await self._paid(block)
                await asyncio.sleep(0)  # little may unpack to much
        unpacker.finish()
        async with aclosing(self.intake.finish()) as blocks:
            async for block in blocks:
                yield await self._paid(block)
        if not self.duration_s:
            raise BadAudio("there is no audio in the request")

    async def _chunk(self, source: web.Request | BodyPartReader) -> bytes:
        async with self.patience.waiting():
            if isinstance(source, BodyPartReader):
                return bytes(await source.read_chunk(CHUNK_BYTES))
            return await source.content.readany()

    def _count(self, chunk: bytes) -> None:
        self._n_bytes += len(chunk)
        if self._n_bytes > self.max_bytes:
            raise BodyTooLarge(f"the audio is larger than {self.max_bytes} bytes, which is what is allowed here")
        self._digest.update(chunk)

    async def _paid(self, block: Block) -> Block:
        seconds = block.shape[1] / SAMPLE_RATE
        self.duration_s += seconds
        if self.duration_s > self.max_s:
            raise SequenceTooLong(f"the recording is longer than {self.max_s:g} s, which is what is allowed here")
        self.patience.earn(seconds)
        wait_s = self.grant.spend(len(block) * seconds, self.clock.now_ns())
        if wait_s:
            await asyncio.sleep(wait_s)
        return block
