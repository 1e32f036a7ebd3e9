"""Audio that says itself what it is: its first bytes decide who takes it."""

from collections.abc import AsyncGenerator
from typing import Final

from server.codec.audio_format import AudioFormat
from server.codec.coded import CodedIntake
from server.codec.magic import MAGIC_BYTES, container_of
from server.codec.pool import CodecPool
from server.codec.rows import Block
from server.codec.wav import WavIntake
from server.errors import BadAudio

MAX_TAG_BYTES: Final = 1 << 24
"""Of an ID3 tag, which is skipped, not kept: pictures are often larger than a minute of speech."""
TAG_HEADER_BYTES: Final = 10


class ContainerIntake:
    """An ``Intake`` that becomes another one once it knows the container.

    Args:
        audio: What the client declares: channels, at most.
        mixdown: One row; else one per declared channel.
        codecs: Where it is decoded if it is no WAV.

    Raises:
        CapacityExceeded: All decoders are taken.
    """

    def __init__(self, audio: AudioFormat, *, mixdown: bool, codecs: CodecPool) -> None:
        self._audio = audio
        self._mixdown = mixdown
        self._codecs = codecs
        self._place = codecs.reserve()
        self._head = b""
        self._skip_bytes = 0
        self._has_tag = False
        self._taker: CodedIntake | WavIntake | None = None

    async def feed(self, data: bytes) -> AsyncGenerator[Block, None]:
        """See ``Intake``."""
        if self._taker is None:
            data = self._gather(data)
            if not data:
                return
            self._settle(data)
        assert self._taker is not None
        async for block in self._taker.feed(data):
            yield block

    async def finish(self) -> AsyncGenerator[Block, None]:
        """See ``Intake``."""
        if self._taker is None and self._head:
            data, self._head = self._head, b""
            async for block in self._settle(data).feed(data):
                yield block
        if self._taker is not None:
            async for block in self._taker.finish():
                yield block

    async def close(self) -> None:
        """See ``Intake``."""
        if self._taker is not None:
            await self._taker.close()
        self._place.release()

    def _gather(self, data: bytes) -> bytes:
        """The audio's first bytes, at least ``MAGIC_BYTES`` of them; none while there are fewer.

        Raises:
            BadAudio: A tag that is too large.
        """
        skipped = min(self._skip_bytes, len(data))
        self._skip_bytes -= skipped
        self._head += data[skipped:]
        if self._head[:3] == b"ID3" and not self._has_tag:
            if len(self._head) < TAG_HEADER_BYTES:
                return b""
            self._has_tag = True
            self._skip_bytes = _tag_bytes(self._head)
            data, self._head = self._head, b""
            return self._gather(data)
        if len(self._head) < MAGIC_BYTES:
            return b""
        head, self._head = self._head, b""
        return head

    def _settle(self, data: bytes) -> CodedIntake | WavIntake:
        coding = self._coding(data)
        if coding == "wav":
            self._taker = WavIntake(self._audio, mixdown=self._mixdown)
            self._place.release()
        else:
            self._taker = CodedIntake(
                self._audio, mixdown=self._mixdown, codecs=self._codecs, coding=coding, place=self._place
            )
        return self._taker

    def _coding(self, data: bytes) -> str:
        """What follows an ID3 tag without a header of its own is MP3, whatever padding comes first."""
        try:
            return container_of(data[:MAGIC_BYTES])
        except BadAudio:
            if self._has_tag:
                return "mp3"
            raise


def _tag_bytes(head: bytes) -> int:
    """Length of the ID3v2 tag that starts with ``head``: seven bits a byte, header and footer not counted."""
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 0x7F
    if size > MAX_TAG_BYTES:
        raise BadAudio(f"the audio starts with an ID3 tag of {size} bytes, allowed: {MAX_TAG_BYTES}")
    return TAG_HEADER_BYTES + size + (TAG_HEADER_BYTES if head[5] & 0x10 else 0)
