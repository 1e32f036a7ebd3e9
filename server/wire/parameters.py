"""Every query parameter of ``/v1/listen``, as a table: what may be said, what it does, or why it is refused.

The table is the whole truth: ``query`` reads values by it, and docs/wire.md shows it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from server.codec.audio_format import ENCODINGS, MAX_CHANNELS, MAX_RATE, MIN_RATE
from server.codec.resampler import MODEL_RATE
from server.plan import LEAST_ENDPOINT_SILENCE_MS, MOST_ENDPOINT_SILENCE_MS

LEAST_UTTERANCE_END_MS: Final = 1_000
MOST_UTTERANCE_END_MS: Final = MOST_ENDPOINT_SILENCE_MS
MAX_LABEL_CHARS: Final = 2_048

LANGUAGES: Final = ("en", "en-us", "en-gb", "en-au", "en-in", "en-nz", "en-ca", "en-ie")
MODELS: Final = (
    "moonshine",
    "moonshine-live",
    "moonshine-base",
    "general",
    "nova",
    "nova-2",
    "nova-3",
    *(
        f"nova{version}-{use}"
        for version in ("", "-2", "-3")
        for use in ("general", "phonecall", "meeting", "voicemail", "conversationalai", "video")
    ),
    "enhanced",
    "enhanced-general",
    "base",
    "base-general",
)
"""Names that say nothing of a vocabulary or of another language."""


class Support(Enum):
    """What becomes of a parameter."""

    SUPPORTED = "supported"
    """It does what it says."""
    ACCEPTED = "accepted"
    """Some values are taken, because they ask for what is done anyway."""
    REFUSED = "refused"
    """No value would be honoured; at most the one that asks for nothing is taken."""


class Values(Protocol):
    """The values that a parameter may have."""

    @property
    def allowed(self) -> str:
        """In words, for an error message."""

    def read(self, text: str) -> str | None:
        """The value in its plain form; None: not allowed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words, in any case."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """See ``Values``."""
        return ", ".join(self.words)

    def read(self, text: str) -> str | None:
        """See ``Values``."""
        return text.lower() if text.lower() in self.words else None


@dataclass(frozen=True, slots=True)
class Integer:
    """Decimal digits, from ``least`` to ``most``."""

    least: int
    most: int

    @property
    def allowed(self) -> str:
        """See ``Values``."""
        return f"an integer from {self.least} to {self.most}"

    def read(self, text: str) -> str | None:
        """See ``Values``. Digits of other scripts are none, nor is a number without end."""
        if not (text.isascii() and text.isdecimal()) or len(text) > 2 * len(str(self.most)):
            return None
        return str(int(text)) if self.least <= int(text) <= self.most else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decimal:
    """A number with at most three decimals, from ``least`` to ``most``."""

    least: float
    most: float

    @property
    def allowed(self) -> str:
        """See ``Values``."""
        return f"a number from {self.least:g} to {self.most:g}"

    def read(self, text: str) -> str | None:
        """See ``Values``."""
        if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) is None:
            return None
        return text if self.least <= float(text) <= self.most else None


@dataclass(frozen=True, slots=True)
class Either:
    """A value of one kind or of another."""

    kinds: tuple[Values, ...]

    @property
    def allowed(self) -> str:
        """See ``Values``."""
        return " or ".join(kind.allowed for kind in self.kinds)

    def read(self, text: str) -> str | None:
        """See ``Values``."""
        return next((value for kind in self.kinds if (value := kind.read(text)) is not None), None)


@dataclass(frozen=True, slots=True)
class Label:
    """Any text, up to a length."""

    pair: bool = False
    """Whether it must be ``KEY:VALUE``."""

    @property
    def allowed(self) -> str:
        """See ``Values``."""
        form = "KEY:VALUE" if self.pair else "any text"
        return f"{form}, at most {MAX_LABEL_CHARS} characters"

    def read(self, text: str) -> str | None:
        """See ``Values``."""
        key, colon, _ = text.partition(":")
        is_fit = len(text) <= MAX_LABEL_CHARS and (not self.pair or bool(key and colon))
        return text if is_fit else None


@dataclass(frozen=True, slots=True)
class Nothing:
    """No value at all."""

    @property
    def allowed(self) -> str:
        """See ``Values``."""
        return "to be left out"

    def read(self, text: str) -> str | None:
        """See ``Values``."""
        return None


BOOLEAN: Final = Choice(("true", "false"))
FALSE: Final = Choice(("false",))
TRUE: Final = Choice(("true",))
NOTHING: Final = Nothing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter."""

    support: Support
    values: Values
    default: str
    """What is done where it is not given, in a few words."""
    note: str
    """What it does, or why it does nothing, or why it is refused."""
    is_repeatable: bool = False


def _supported(values: Values, default: str, note: str, *, is_repeatable: bool = False) -> Parameter:
    return Parameter(support=Support.SUPPORTED, values=values, default=default, note=note, is_repeatable=is_repeatable)


def _accepted(values: Values, default: str, note: str, *, is_repeatable: bool = False) -> Parameter:
    return Parameter(support=Support.ACCEPTED, values=values, default=default, note=note, is_repeatable=is_repeatable)


def _refused(note: str, values: Values = NOTHING) -> Parameter:
    return Parameter(support=Support.REFUSED, values=values, default="–", note=note)


PARAMETERS: Final[Mapping[str, Parameter]] = {
    # the audio
    "encoding": _supported(
        Choice(ENCODINGS),
        "a container is detected",
        "How the audio is encoded. float32 is another name of linear32 (32-bit floats, little-endian). Leave it out "
        "for containers: WAV, FLAC, Ogg, WebM, MP3, AAC, fragmented MP4.",
    ),
    "sample_rate": _supported(
        Integer(MIN_RATE, MAX_RATE),
        f"{MODEL_RATE} for linear16 and linear32",
        "Samples per second of raw audio. mulaw and alaw need it. flac, opus and ogg-opus say their own. Given without "
        "encoding, the audio is linear16.",
    ),
    "channels": _supported(
        Integer(1, MAX_CHANNELS),
        "1",
        "Channels that raw audio interleaves; opus has at most 2. Without multichannel they are mixed to one.",
    ),
    "multichannel": _supported(
        BOOLEAN,
        "false",
        "A sequence per channel, each told by its channel_index. Needs channels; a container must have that many. "
        "Takes a slot per channel.",
    ),
    # what is told, and when
    "interim_results": _supported(BOOLEAN, "false", "A result per 240 ms of audio, beside the finals."),
    "endpointing": _supported(
        Either((Choice(("true", "false", "0")), Integer(LEAST_ENDPOINT_SILENCE_MS, MOST_ENDPOINT_SILENCE_MS))),
        "true: the setting of the service (0.6 to 0.8 s)",
        "Milliseconds of silence that end an utterance. Decided every 240 ms, so that less acts as 240. false or 0: "
        "silence ends none; Finalize, CloseStream and the maximum length do.",
    ),
    "utterance_end_ms": _supported(
        Integer(LEAST_UTTERANCE_END_MS, MOST_UTTERANCE_END_MS),
        "no UtteranceEnd",
        "UtteranceEnd after so many milliseconds without a word, once per last word, after the final with that word. "
        "Needs interim_results=true.",
    ),
    "vad_events": _supported(BOOLEAN, "false", "SpeechStarted where speech begins."),
    # the text
    "punctuate": _supported(
        BOOLEAN,
        "true",
        "The models write punctuation and case. false: lower case without punctuation, and no punctuated_word.",
    ),
    "smart_format": _accepted(
        BOOLEAN,
        "false",
        "The models write sentences, and numbers, dates and amounts as they see fit; nothing is rewritten. true keeps "
        "punctuation whatever punctuate says.",
    ),
    "filler_words": _supported(
        BOOLEAN, "true", 'false leaves out "uh" and "um". true keeps those that the models write.'
    ),
    "profanity_filter": _supported(BOOLEAN, "false", "true writes a fixed list of English swear words as asterisks."),
    "sentiment": _supported(
        BOOLEAN,
        "false",
        "sentiment and sentiment_score beside each final transcript, where the service is configured to tell it "
        "(final.sentiment); else true is refused.",
    ),
    "numerals": _refused("Numbers are given as the models write them.", FALSE),
    "dictation": _refused("Spoken commands are text like any other.", FALSE),
    "measurements": _refused("Units are given as the models write them.", FALSE),
    "redact": _refused("Personal details are not masked.", FALSE),
    "replace": _refused("Words are not replaced."),
    "keyterm": _refused("The models cannot be prompted with terms yet."),
    "keywords": _refused("The models cannot be prompted with words yet."),
    "search": _refused("There is no search in the audio; search the text."),
    "alternatives": _accepted(Choice(("1",)), "1", "There is one reading."),
    # who speaks what
    "model": _accepted(
        Choice(MODELS),
        "the models of the service",
        "A name that clients must send. The models of the configuration answer; model_info says which.",
    ),
    "version": _accepted(Choice(("latest",)), "latest", "There is one version; model_info has it."),
    "tier": _accepted(Choice(("nova", "enhanced", "base")), "–", "An old way to name a model; see model."),
    "language": _accepted(Choice(LANGUAGES), "en", "The models read English, however it is spoken."),
    "detect_language": _refused("The models read English alone.", FALSE),
    "language_hint": _refused("The models read English alone."),
    "diarize": _refused("Speakers are not told apart; with one speaker per channel use multichannel.", FALSE),
    "diarize_model": _refused("Speakers are not told apart."),
    "diarize_version": _refused("Speakers are not told apart."),
    "detect_entities": _refused("Entities are not marked.", FALSE),
    # the request
    "tag": _accepted(Label(), "none", "A label of the client's own; it is not echoed.", is_repeatable=True),
    "extra": _supported(Label(pair=True), "none", "Echoed as extra in the Metadata message.", is_repeatable=True),
    "mip_opt_out": _accepted(BOOLEAN, "true", "No audio is kept, whatever this says."),
    "no_delay": _accepted(BOOLEAN, "true", "No result waits for formatting."),
    "callback": _refused("Results go to the client that sends the audio, nowhere else."),
    "callback_method": _refused("Results go to the client that sends the audio, nowhere else."),
    # of recordings only, also at Deepgram
    "utterances": _refused("Of recordings only; finals with speech_final are utterances.", FALSE),
    "utt_split": _refused("Of recordings only; see endpointing."),
    "paragraphs": _refused("Of recordings only.", FALSE),
    "summarize": _refused("Of recordings only.", FALSE),
    "topics": _refused("Of recordings only.", FALSE),
    "intents": _refused("Of recordings only.", FALSE),
}
