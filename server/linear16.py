"""Raw signed 16-bit little-endian audio, mono, in any framing: a sample may be split between two messages."""

from typing import Final

import numpy as np

from server.errors import BadAudio
from server.plan import Samples

CONTAINERS: Final = {
    b"RIFF": ("RIFF", "a WAV file"),
    b"RF64": ("RF64", "a WAV file"),
    b"fLaC": ("fLaC", "a FLAC file"),
    b"OggS": ("OggS", "an Ogg file"),
    b"\x1aE\xdf\xa3": ("EBML", "a WebM or Matroska file"),
    b"ID3\x03": ("ID3", "an MP3 file"),
    b"ID3\x04": ("ID3", "an MP3 file"),
}
"""First bytes of what is often sent by mistake."""
MAGIC_BYTES: Final = 4
SCALE: Final = np.float32(1 / 32768)


class Linear16Decoder:
    """Bytes to float32 samples in [-1, 1), exactly value / 32768."""

    __slots__ = ("_carry", "_magic")

    def __init__(self) -> None:
        self._carry = b""
        self._magic = b""

    def decode(self, data: bytes) -> Samples:
        """float32 [N] of the whole samples so far; an odd byte waits for its other half.

        Raises:
            BadAudio: The audio starts as a container file does.
        """
        if len(self._magic) < MAGIC_BYTES:
            self._check_magic(data)
        data = self._carry + data
        whole_bytes = len(data) & ~1
        self._carry = data[whole_bytes:]
        return np.frombuffer(data, dtype="<i2", count=whole_bytes // 2).astype(np.float32) * SCALE

    def _check_magic(self, data: bytes) -> None:
        self._magic += data[: MAGIC_BYTES - len(self._magic)]
        found = CONTAINERS.get(self._magic)
        if found is not None:
            name, kind = found
            raise BadAudio(
                f"the audio starts with a {name} header ({kind}): send raw linear16 samples, "
                "little-endian, mono, without any header"
            )
