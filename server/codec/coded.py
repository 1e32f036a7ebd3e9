"""Coded audio of one connection: turns of a stream in a codec process."""

from collections.abc import AsyncGenerator

from server.codec.audio_format import AudioFormat
from server.codec.channel import CodecStream
from server.codec.magic import first_coding
from server.codec.messages import MAX_DATA_BYTES, Kind, StreamOrder
from server.codec.pool import CodecPool, Place
from server.codec.rows import Block
from server.errors import BadAudio


class CodedIntake:
    """An ``Intake`` for what needs a decoder.

    Args:
        audio: What the client declares.
        mixdown: One row; else one per declared channel.
        codecs: Where it is decoded.
        coding: As in ``StreamOrder``; None: what the encoding and the first bytes say.
        place: Taken over; None: one is reserved.

    Raises:
        CapacityExceeded: All decoders are taken.
    """

    def __init__(
        self,
        audio: AudioFormat,
        *,
        mixdown: bool,
        codecs: CodecPool,
        coding: str | None = None,
        place: Place | None = None,
    ) -> None:
        self._audio = audio
        self._mixdown = mixdown
        self._codecs = codecs
        self._coding = coding
        self._place = place or codecs.reserve()
        self._stream: CodecStream | None = None

    async def feed(self, data: bytes) -> AsyncGenerator[Block, None]:
        """See ``Intake``. For Opus packets ``data`` is one of them, whole."""
        if not data:
            return
        stream = self._stream or self._open(data)
        if self._coding == "opus" and len(data) > MAX_DATA_BYTES:
            raise BadAudio(f"a message of {len(data)} bytes is no Opus packet: send one packet a message")
        for start in range(0, len(data), MAX_DATA_BYTES):
            if stream.is_done:
                raise BadAudio("audio goes on after the end that its container declares: send one file a connection")
            async for block in stream.turn(Kind.DATA, data[start : start + MAX_DATA_BYTES]):
                yield block

    async def finish(self) -> AsyncGenerator[Block, None]:
        """See ``Intake``."""
        if self._stream is not None and not self._stream.is_done:
            async for block in self._stream.turn(Kind.END):
                yield block

    async def close(self) -> None:
        """See ``Intake``."""
        if self._stream is not None:
            self._stream.release()
        self._place.release()

    def _open(self, data: bytes) -> CodecStream:
        self._coding = self._coding or first_coding(str(self._audio.encoding), data)
        order = StreamOrder(coding=self._coding, mixdown=self._mixdown, channels=self._audio.channels)
        self._stream = self._codecs.open(order)
        return self._stream
