"""What audio is, by its first bytes. Pure."""

from typing import Final

from server.codec.audio_format import CONTAINERS
from server.errors import BadAudio

MAGIC_BYTES: Final = 12
"""Enough to tell every container."""
RAW_MAGIC_BYTES: Final = 4

MAGICS: Final = {
    b"RIFF": ("RIFF", "a WAV file"),
    b"RF64": ("RF64", "a WAV file"),
    b"fLaC": ("fLaC", "a FLAC file"),
    b"OggS": ("OggS", "an Ogg file"),
    b"\x1aE\xdf\xa3": ("EBML", "a WebM or Matroska file"),
    b"ID3\x03": ("ID3", "an MP3 file"),
    b"ID3\x04": ("ID3", "an MP3 file"),
}
"""First bytes of what is sent by mistake where raw samples are declared."""


def container_of(head: bytes) -> str:
    """``wav``, ``flac``, ``ogg``, ``webm``, ``mp4``, ``mp3`` or ``aac``: the container that starts with ``head``.

    ``head`` is the audio's first ``MAGIC_BYTES``, after an ID3 tag if there is one.

    Raises:
        BadAudio: It starts as none of them does.
    """
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    named = {b"fLaC": "flac", b"OggS": "ogg", b"\x1aE\xdf\xa3": "webm"}.get(head[:4])
    if named is not None:
        return named
    if head[4:8] == b"ftyp":
        return "mp4"
    if len(head) >= 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return _mpeg_audio(head[1])
    raise BadAudio(
        f"the audio starts with {head[:8].hex(' ') or 'nothing'}, which is no container that is taken: send "
        f"{', '.join(CONTAINERS)}, or declare encoding and sample_rate for raw audio"
    )


def _mpeg_audio(second: int) -> str:
    """Both start with eleven set bits; ADTS has the layer that no MPEG audio has."""
    return "aac" if second & 0xF6 == 0xF0 else "mp3"


def first_coding(encoding: str, data: bytes) -> str:
    """``opus``, ``flac`` or ``ogg``: what is decoded where ``encoding`` is declared and the audio starts with ``data``.

    Raises:
        BadAudio: It starts as something else does.
    """
    magic = data[:4]
    if encoding == "flac":
        return "flac"  # its framing checks
    if magic == b"OggS"[: len(magic)]:
        return "ogg"
    if encoding == "ogg-opus":
        raise BadAudio(f"encoding=ogg-opus is declared, but the audio starts with {magic.hex(' ')}, not OggS")
    if magic in MAGICS:
        name, kind = MAGICS[magic]
        raise BadAudio(
            f"the audio starts with a {name} header ({kind}), but encoding={encoding} is declared: send one Opus "
            "packet a message, an Ogg stream, or leave encoding out, so that the container is detected"
        )
    return "opus"


class RawGuard:
    """Refuses a container where raw samples are declared, however its first bytes are cut."""

    __slots__ = ("_encoding", "_head")

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._head = b""

    def check(self, data: bytes) -> None:
        """Looks at the next bytes; only the first four of the audio matter.

        Raises:
            BadAudio: The audio starts as a container does.
        """
        if len(self._head) == RAW_MAGIC_BYTES:
            return
        self._head += data[: RAW_MAGIC_BYTES - len(self._head)]
        found = MAGICS.get(self._head)
        if found is not None:
            name, kind = found
            raise BadAudio(
                f"the audio starts with a {name} header ({kind}), but encoding={self._encoding} is declared: send raw "
                "samples without any header, or leave encoding and sample_rate out, so that the container is detected"
            )
