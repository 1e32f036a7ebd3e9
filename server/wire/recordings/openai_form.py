"""The fields of ``POST /v1/audio/transcriptions``, as OpenAI's API names them. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from server.errors import BadParameter
from server.wire.parameters import LANGUAGES

MODELS: Final = ("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe", "moonshine", "moonshine-base")
"""Names that clients must send; the final model of the configuration answers."""
MODEL_DATE: Final = re.compile(r"-\d{4}-\d{2}-\d{2}$")
MAX_FIELD_CHARS: Final = 4_096
FIELDS: Final = (
    "file",
    "model",
    "language",
    "prompt",
    "response_format",
    "temperature",
    "timestamp_granularities[]",
    "stream",
    "include[]",
    "chunking_strategy",
)


class ResponseFormat(Enum):
    """How the text is told."""

    JSON = "json"
    TEXT = "text"
    SRT = "srt"
    VERBOSE_JSON = "verbose_json"
    VTT = "vtt"


class BadField(BadParameter):
    """A field of the form; ``param`` is its name."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionForm:
    """What a client asked for."""

    response_format: ResponseFormat = ResponseFormat.JSON
    word_times: bool = False
    """In verbose_json: the words with their times."""
    segment_times: bool = True
    """In verbose_json: the segments."""
    stream: bool = False
    """Server-sent events, a piece of text each, as they are read."""


def parse_form(fields: Mapping[str, Sequence[str]], models: Sequence[str] = ()) -> TranscriptionForm:
    """The text fields of the form.

    Args:
        fields: All values by name, the file aside.
        models: Names that ``model`` may have beside ``MODELS``.

    Raises:
        BadField: A field is unknown, given twice, missing, or has a value that is not taken.
    """
    plain = _plain(fields)
    _check_model(plain.get("model"), models)
    _check_fixed(plain)
    response_format = _response_format(plain.get("response_format", "json"))
    granularities = set(_granularities(fields))
    if granularities and response_format is not ResponseFormat.VERBOSE_JSON:
        raise BadField("timestamp_granularities[]", "needs response_format=verbose_json")
    stream = _choice("stream", plain.get("stream", "false").lower(), ("true", "false")) == "true"
    if stream and response_format not in (ResponseFormat.JSON, ResponseFormat.TEXT):
        raise BadField("stream", "needs response_format json or text")
    return TranscriptionForm(
        response_format=response_format,
        word_times="word" in granularities,
        segment_times=not granularities or "segment" in granularities,
        stream=stream,
    )


def _plain(fields: Mapping[str, Sequence[str]]) -> dict[str, str]:
    plain: dict[str, str] = {}
    for name, values in fields.items():
        known = "timestamp_granularities[]" if name == "timestamp_granularities" else name
        if known not in FIELDS:
            raise BadField(name[:80], f"is not known; allowed: {', '.join(FIELDS)}")
        if len(values) > 1 and not known.endswith("[]"):
            raise BadField(name, "is given twice")
        if any(len(value) > MAX_FIELD_CHARS for value in values):
            raise BadField(name, f"has more than {MAX_FIELD_CHARS} characters")
        plain[known] = values[0]
    return plain


def _check_model(model: str | None, models: Sequence[str]) -> None:
    allowed = dict.fromkeys((*models, *MODELS))
    if model is None:
        raise BadField("model", f"is missing; allowed: {', '.join(allowed)}")
    if MODEL_DATE.sub("", model) not in allowed:
        raise BadField("model", f"is {_shown(model)}; allowed: {', '.join(allowed)}")


def _check_fixed(plain: Mapping[str, str]) -> None:
    """What changes a result elsewhere and cannot here."""
    if plain.get("language", "en").lower() not in ("english", *LANGUAGES):
        raise BadField("language", f"is {_shown(plain['language'])}; the models read English alone: en")
    if plain.get("prompt"):
        raise BadField("prompt", "the models cannot be prompted; leave it out")
    if "include[]" in plain:
        raise BadField("include[]", "is not supported; verbose_json has the confidence of each word")
    if plain.get("chunking_strategy", "auto") not in ("auto", '"auto"', ""):
        raise BadField("chunking_strategy", "allowed: auto; long recordings are cut at pauses")
    temperature = plain.get("temperature", "0")
    if re.fullmatch(r"0+(\.0*)?", temperature) is None:
        raise BadField("temperature", f"is {_shown(temperature)}; allowed: 0, for the likeliest text is told")


def _granularities(fields: Mapping[str, Sequence[str]]) -> list[str]:
    given = (*fields.get("timestamp_granularities[]", ()), *fields.get("timestamp_granularities", ()))
    return [_choice("timestamp_granularities[]", value, ("word", "segment")) for value in given]


def _response_format(value: str) -> ResponseFormat:
    return ResponseFormat(_choice("response_format", value, tuple(each.value for each in ResponseFormat)))


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise BadField(name, f"is {_shown(value)}; allowed: {', '.join(allowed)}")
    return value


def _shown(value: str) -> str:
    return repr(value if len(value) <= 80 else f"{value[:80]}…")
