"""What crosses between the service and a codec process: small frames, no pickle, so that a decoder gone wrong can send
nothing worse than wrong audio. Pure.

A stream's traffic is turns: one DATA or END there; BLOCKs and then one HUNGRY, DONE or FAULT back.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Final, cast

import numpy as np

from server.codec.rows import BLOCK_SAMPLES, Block

HEADER: Final = struct.Struct("<IIB")
"""Payload's length in bytes, stream's number, kind."""
MAX_DATA_BYTES: Final = 65_536
"""Of one DATA: bounds what waits in a codec process and how long the service's loop is taken by one message."""
MAX_PAYLOAD_BYTES: Final = 8 * BLOCK_SAMPLES * 4
WINDOW_BLOCKS: Final = 2
"""BLOCKs that may be under way without TAKEN: one second of audio at most."""


class Kind(IntEnum):
    """Of a frame."""

    OPEN = 1
    """To the process: a new stream; JSON of ``StreamOrder``."""
    DATA = 2
    """To the process: the client's next bytes."""
    END = 3
    """To the process: no bytes follow."""
    TAKEN = 4
    """To the process: one BLOCK was taken; another may be sent."""
    CLOSE = 5
    """To the process: the stream is given up."""
    BLOCK = 6
    """To the service: one byte R, then float32 [R, N]."""
    HUNGRY = 7
    """To the service: all that the bytes so far complete has been sent."""
    DONE = 8
    """To the service: the audio is complete; answers END, or DATA where a container ends by itself."""
    FAULT = 9
    """To the service: JSON of ``Fault``; the stream is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOrder:
    """What a stream is, as the service has found out."""

    coding: str
    """``opus``, ``flac``, ``ogg``, ``webm``, ``mp4``, ``mp3`` or ``aac``: never guessed by the decoder."""
    mixdown: bool
    channels: int
    """As declared; the audio must have them where they are kept apart."""

    def packed(self) -> bytes:
        """As a payload."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, payload: bytes) -> "StreamOrder":
        """Of a payload that ``packed`` made."""
        return cls(**json.loads(payload))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a stream is over."""

    is_bad_audio: bool
    """The client's fault; else ours."""
    text: str

    def packed(self) -> bytes:
        """As a payload, however long the text is."""
        return json.dumps({"is_bad_audio": self.is_bad_audio, "text": self.text[:4000]}).encode()

    @classmethod
    def unpacked(cls, payload: bytes) -> "Fault":
        """Of a payload.

        Raises:
            ValueError: It is no fault.
        """
        fields = json.loads(payload)
        if not isinstance(fields, dict):
            raise ValueError("a fault that is no object")
        return cls(is_bad_audio=fields.get("is_bad_audio") is True, text=str(fields.get("text")))


def packed_block(block: Block) -> bytes:
    """A BLOCK's payload."""
    return bytes([len(block)]) + block.tobytes()


def unpacked_block(payload: bytes, rows: int) -> Block:
    """float32 [R, N] of a BLOCK's payload.

    Raises:
        ValueError: It is not a block of that many rows.
    """
    if not payload or payload[0] != rows:
        raise ValueError(f"a block of {payload[:1].hex()} rows instead of {rows}")
    flat = np.frombuffer(payload, np.float32, offset=1)
    return cast(Block, flat.reshape(rows, -1))


def frame(kind: Kind, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(len(payload), stream, kind) + payload


class FrameReader:
    """Bytes as they come, to frames."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, int, bytes]]:
        """The frames that ``data`` completes: kind, stream, payload.

        Raises:
            ValueError: These bytes are no frames.
        """
        self._waiting += data
        start = 0
        while len(self._waiting) - start >= HEADER.size:
            n_bytes, stream, kind = HEADER.unpack_from(self._waiting, start)
            if n_bytes > MAX_PAYLOAD_BYTES + 1:
                raise ValueError(f"a frame of {n_bytes} bytes")
            end = start + HEADER.size + n_bytes
            if len(self._waiting) < end:
                break
            yield Kind(kind), stream, bytes(self._waiting[start + HEADER.size : end])
            start = end
        del self._waiting[:start]
