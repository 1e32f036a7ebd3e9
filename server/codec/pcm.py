"""Raw samples in any framing: a sample, or a frame of channels, may be split between two messages."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from server.errors import BadAudio
from server.plan import Samples

SCALE_16: Final = np.float32(1 / 32768)
SCALE_32: Final = np.float32(1 / 2147483648)
PIECE_BYTES: Final = 8_192
"""Samples are converted in pieces of this size, so that a large message never holds up the event loop."""
LOUDEST: Final = 32.0
"""Float samples above it are on another scale, integers taken for floats for example."""

ULAW_BIAS: Final = 33
ALAW_TOGGLED: Final = 0x55
"""G.711: every other bit of an A-law code is inverted on the line."""

SAMPLE_BYTES: Final = {
    "linear16": 2,
    "linear32": 4,
    "float32": 4,
    "mulaw": 1,
    "alaw": 1,
    "unsigned8": 1,
    "linear24": 3,
    "integer32": 4,
    "float64": 8,
}
"""By encoding; those after ``alaw`` are what WAV files hold besides."""


class PcmDecoder:
    """Bytes to float32 [C, N], full scale at 1: integers are exactly value / 2^(bits - 1).

    Args:
        encoding: A key of ``SAMPLE_BYTES``.
        channels: C, 1 to 8; samples are interleaved.
    """

    __slots__ = ("_carry", "_channels", "_encoding", "_frame_bytes", "_table")

    def __init__(self, encoding: str, channels: int) -> None:
        self._encoding = encoding
        self._channels = channels
        self._frame_bytes = SAMPLE_BYTES[encoding] * channels
        self._table = _TABLES[encoding]() if encoding in _TABLES else None
        self._carry = b""

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of every channel."""
        return self._frame_bytes

    def decode(self, data: bytes) -> Samples:
        """float32 [C, N] of the whole frames so far; the rest waits for its other part.

        Raises:
            BadAudio: A float sample is no number, or on another scale.
        """
        if self._carry:
            data = self._carry + data
        n_bytes = len(data) - len(data) % self._frame_bytes
        self._carry = data[n_bytes:]
        flat = self._values(data[:n_bytes])
        return np.ascontiguousarray(flat.reshape(-1, self._channels).T)

    def _values(self, data: bytes) -> Samples:
        if self._table is not None:
            return self._table[np.frombuffer(data, np.uint8)]
        match self._encoding:
            case "linear16":
                return np.frombuffer(data, "<i2").astype(np.float32) * SCALE_16
            case "linear24":
                return _int24(data).astype(np.float32) * SCALE_32
            case "integer32":
                return np.frombuffer(data, "<i4").astype(np.float32) * SCALE_32
            case "float64":
                return _checked(np.frombuffer(data, "<f8"))
            case _:
                return _checked(np.frombuffer(data, "<f4"))


def _int24(data: bytes) -> NDArray[np.int32]:
    """24-bit samples in the upper bits of 32-bit ones."""
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return wide.view("<i4")[:, 0]


def _checked(values: NDArray[np.float32] | NDArray[np.float64]) -> Samples:
    if not len(values):
        return np.zeros(0, np.float32)
    peak = float(np.abs(values).max())  # NaN if there is one
    if not np.isfinite(peak):
        raise BadAudio("the audio holds a float sample that is no finite number: send samples in [-1, 1]")
    if peak > LOUDEST:
        raise BadAudio(f"the audio holds a float sample of {peak:g}: send samples scaled to [-1, 1]")
    return values.astype(np.float32)


def _unsigned8_table() -> Samples:
    return (np.arange(256, dtype=np.float32) - np.float32(128)) / np.float32(128)


def _mulaw_table() -> Samples:
    """G.711 mu-law: the code's complement is sign, three bits of exponent, four of mantissa; 14-bit values."""
    code = ~np.arange(256, dtype=np.uint8)
    magnitude = (((code & 0x0F).astype(np.int32) * 2 + ULAW_BIAS) << ((code >> 4) & 7).astype(np.int32)) - ULAW_BIAS
    return (np.where(code & 0x80, -magnitude, magnitude) / 8192).astype(np.float32)


def _alaw_table() -> Samples:
    """G.711 A-law: sign (set: positive), three bits of exponent, four of mantissa; 13-bit values."""
    code = np.arange(256, dtype=np.uint8) ^ ALAW_TOGGLED
    mantissa, exponent = (code & 0x0F).astype(np.int32) * 2 + 1, ((code >> 4) & 7).astype(np.int32)
    magnitude = np.where(exponent == 0, mantissa, (mantissa + 32) << np.maximum(exponent - 1, 0))
    return (np.where(code & 0x80, magnitude, -magnitude) / 4096).astype(np.float32)


_TABLES: Final = {"mulaw": _mulaw_table, "alaw": _alaw_table, "unsigned8": _unsigned8_table}
