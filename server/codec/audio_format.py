"""What a client says of its audio before the first byte. Pure."""

from dataclasses import dataclass
from typing import Final

MIN_RATE: Final = 4_000
MAX_RATE: Final = 96_000
"""Of raw samples, as declared. Coded audio may have up to 192 kHz."""
MAX_CHANNELS: Final = 8

PCM_ENCODINGS: Final = ("linear16", "linear32", "float32", "mulaw", "alaw")
"""Raw samples, interleaved, without a header: they need a sample rate. ``float32`` is another name of ``linear32``."""
CODED_ENCODINGS: Final = ("flac", "opus", "ogg-opus")
"""They say their rate and channels themselves; what is declared beside them is not needed."""
ENCODINGS: Final = PCM_ENCODINGS + CODED_ENCODINGS
CONTAINERS: Final = ("WAV", "FLAC", "Ogg (Opus, Vorbis, FLAC)", "WebM/Matroska", "MP3", "AAC (ADTS)", "fragmented MP4")
"""Detected by their first bytes where no encoding is declared; as they are called in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFormat:
    """The audio of one connection, as its query declares it. The caller has checked the values.

    Raises:
        AssertionError: A value out of its range.
    """

    encoding: str | None = None
    """One of ``ENCODINGS``; None: a container, detected from the first bytes."""
    sample_rate: int | None = None
    """Samples per second and channel, ``MIN_RATE`` to ``MAX_RATE``; needed for ``PCM_ENCODINGS``, else not used."""
    channels: int = 1
    """1 to 8. For PCM how samples are interleaved. Else needed only where channels are kept apart: then the audio must
    have that many."""

    def __post_init__(self) -> None:
        assert self.encoding is None or self.encoding in ENCODINGS
        assert 1 <= self.channels <= MAX_CHANNELS
        assert self.sample_rate is None or MIN_RATE <= self.sample_rate <= MAX_RATE
        assert self.sample_rate is not None or not self.is_pcm

    @property
    def is_pcm(self) -> bool:
        """Whether it is raw samples."""
        return self.encoding in PCM_ENCODINGS
