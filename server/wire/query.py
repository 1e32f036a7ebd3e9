"""The query of ``/v1/listen``, read by the table of ``parameters``: all of it is honoured, harmless or refused."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from server.codec.audio_format import PCM_ENCODINGS, AudioFormat
from server.codec.resampler import MODEL_RATE
from server.errors import BadParameter
from server.plan import SequenceOptions
from server.wire.parameters import PARAMETERS, Parameter, Support
from server.wire.text_format import TextFormat

MAX_QUERY_CHARS: Final = 4096
MAX_SHOWN_CHARS: Final = 80
OPUS_CHANNELS: Final = 2
NEED_RATE: Final = ("mulaw", "alaw")
"""Of these no rate is so common that it may be assumed: a wrong one turns speech into noise without any error."""


class BadQuery(BadParameter):
    """A parameter or value of the query; answered before the upgrade, with status 400."""

    def __init__(
        self, *, parameter: str, value: str | None, allowed: str, why: str = "", is_missing: bool = False
    ) -> None:
        said = "is missing" if is_missing else "is not known" if value is None else f"is {_shown(value)}"
        reason = f". {why}" if why else ""
        super().__init__(f"query parameter {parameter[:MAX_SHOWN_CHARS]} {said}; allowed: {allowed}{reason}")
        self.parameter = parameter
        self.value = value
        """None where the parameter itself is unknown, or is needed and missing."""
        self.allowed = allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What a client asked for."""

    audio: AudioFormat = field(default_factory=AudioFormat)
    multichannel: bool = False
    """A sequence per channel; else the channels are mixed to one."""
    interim_results: bool = False
    """Whether it wants a result per tick, beside the finals."""
    endpointing_ms: int | None = None
    """Silence that ends an utterance. None: as the service is configured; 0: silence ends none."""
    utterance_end_ms: int | None = None
    """Time without a word after which UtteranceEnd is told; None: never."""
    vad_events: bool = False
    """Whether it wants SpeechStarted."""
    sentiment: bool = False
    """Whether it wants the sentiment of finals."""
    text: TextFormat = field(default_factory=TextFormat)
    tags: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    """Labels to echo: key and value."""

    @property
    def sequences(self) -> int:
        """Sequences that the session needs: channel k of the audio is sequence k."""
        return self.audio.channels if self.multichannel else 1

    @property
    def endpoint_is_speech_final(self) -> bool:
        """Whether an utterance that ended at silence did so because ``endpointing`` asked for it."""
        if self.endpointing_ms is None:
            return True
        return 0 < self.endpointing_ms <= (self.utterance_end_ms or self.endpointing_ms)

    def sequence_options(self) -> SequenceOptions:
        """What its sequences are opened with.

        UtteranceEnd follows the final with the last word, so that the silence that it waits for ends the utterance too.
        """
        silence_ms = self.endpointing_ms
        if silence_ms is not None and self.utterance_end_ms is not None:
            silence_ms = min(silence_ms or self.utterance_end_ms, self.utterance_end_ms)
        return SequenceOptions(endpoint_silence_ms=silence_ms)


def parse_query(query: str, models: Collection[str] = ()) -> SessionOptions:
    """The options in a query string (without the question mark).

    Args:
        query: As it came.
        models: Names that ``model`` may have beside those that are always taken.

    Raises:
        BadQuery: A parameter is unknown, given twice, has a value that is not allowed, or needs another one.
    """
    given = given_values(query, PARAMETERS, models)
    plain = {name: values[0] for name, values in given.items()}
    check_together(plain)
    silence = plain.get("endpointing", "true")
    return SessionOptions(
        audio=audio_format(plain),
        multichannel=flag(plain, "multichannel"),
        interim_results=flag(plain, "interim_results"),
        endpointing_ms=None if silence == "true" else 0 if silence == "false" else int(silence),
        utterance_end_ms=int(plain["utterance_end_ms"]) if "utterance_end_ms" in plain else None,
        vad_events=flag(plain, "vad_events"),
        sentiment=flag(plain, "sentiment"),
        text=text_format(plain),
        tags=tuple(given.get("tag", ())),
        extra=tuple(_pair(label) for label in given.get("extra", ())),
    )


def given_values(query: str, table: Mapping[str, Parameter], models: Collection[str] = ()) -> dict[str, list[str]]:
    """Every parameter of a query with its values in their plain form, each checked by itself.

    Raises:
        BadQuery: One is unknown, given twice, or has a value that is not allowed.
    """
    if len(query) > MAX_QUERY_CHARS:
        raise BadQuery(parameter="(all)", value=query, allowed=f"at most {MAX_QUERY_CHARS} characters")
    given: dict[str, list[str]] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        parameter = table.get(name)
        if parameter is None:
            known = (each for each in table if table[each].support is not Support.REFUSED)
            raise BadQuery(parameter=name, value=None, allowed=", ".join(known))
        if name in given and not parameter.is_repeatable:
            raise BadQuery(parameter=name, value=text, allowed="to be given once")
        value = parameter.values.read(text)
        if value is None and name == "model" and text in models:
            value = text
        if value is None:
            why = "" if parameter.support is Support.SUPPORTED else parameter.note
            raise BadQuery(parameter=name, value=text, allowed=parameter.values.allowed, why=why)
        given.setdefault(name, []).append(value)
    return given


def check_together(plain: Mapping[str, str]) -> None:
    """What depends on another parameter.

    Raises:
        BadQuery: named after the parameter that has to be changed.
    """
    encoding, channels = plain.get("encoding"), int(plain.get("channels", "1"))
    if "utterance_end_ms" in plain and not flag(plain, "interim_results"):
        raise _needed(
            plain, "interim_results", "true", "utterance_end_ms needs it: it looks for gaps between interim words."
        )
    if flag(plain, "multichannel") and "channels" not in plain:
        raise _needed(plain, "channels", PARAMETERS["channels"].values.allowed, "multichannel=true needs it.")
    if encoding in NEED_RATE and "sample_rate" not in plain:
        allowed = PARAMETERS["sample_rate"].values.allowed
        raise _needed(plain, "sample_rate", allowed, f"encoding={encoding} needs it; telephony has 8000.")
    if encoding == "opus" and channels > OPUS_CHANNELS:
        raise _needed(plain, "channels", f"an integer from 1 to {OPUS_CHANNELS}", "A packet of opus has no more.")


def sentiment_refused(*, is_configured: bool = False) -> BadQuery:
    """Of a service that does not tell it, or cannot for now although it is configured to."""
    why = "This service does not tell the sentiment of texts (final.sentiment)."
    if is_configured:
        why = "The model that tells the sentiment of texts is not loaded now."
    return BadQuery(parameter="sentiment", value="true", allowed="false", why=why)


def _needed(plain: Mapping[str, str], name: str, allowed: str, why: str) -> BadQuery:
    value = plain.get(name)
    return BadQuery(parameter=name, value=value, allowed=allowed, why=why, is_missing=value is None)


def audio_format(plain: Mapping[str, str]) -> AudioFormat:
    """A rate without an encoding is of raw samples, and those are linear16."""
    encoding = plain.get("encoding") or ("linear16" if "sample_rate" in plain else None)
    rate = int(plain["sample_rate"]) if "sample_rate" in plain else None
    if rate is None and encoding in PCM_ENCODINGS:
        rate = MODEL_RATE
    return AudioFormat(encoding=encoding, sample_rate=rate, channels=int(plain.get("channels", "1")))


def text_format(plain: Mapping[str, str]) -> TextFormat:
    """How the words are to be written."""
    return TextFormat(
        punctuate=flag(plain, "punctuate", default=True) or flag(plain, "smart_format"),
        filler_words=flag(plain, "filler_words", default=True),
        mask_profanity=flag(plain, "profanity_filter"),
    )


def flag(plain: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Whether a boolean is true."""
    return plain[name] == "true" if name in plain else default


def _pair(label: str) -> tuple[str, str]:
    key, _, value = label.partition(":")
    return key, value


def _shown(value: str) -> str:
    shown = repr(value)
    return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[:MAX_SHOWN_CHARS]}…"
