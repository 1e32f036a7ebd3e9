"""The query of ``/v1/listen``: what is honoured, what is accepted because it changes nothing; the rest is refused."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from server.errors import BadParameter
from server.resampler import MAX_RATE, MIN_RATE, MODEL_RATE

MAX_QUERY_CHARS: Final = 2048
BOOLEANS: Final = ("true", "false")


class BadQuery(BadParameter):
    """A parameter or value of the query; answered before the upgrade, with status 400."""

    def __init__(self, *, parameter: str, value: str | None, allowed: str) -> None:
        said = "is not known" if value is None else f"is {value!r}"
        super().__init__(f"query parameter {parameter} {said}; allowed: {allowed}")
        self.parameter = parameter
        self.value = value
        """None where the parameter itself is unknown."""
        self.allowed = allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What a client asked for."""

    sample_rate: int = MODEL_RATE
    """Samples per second of the audio it sends."""
    interim_results: bool = False
    """Whether it wants a result per tick, beside the finals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inert:
    """A parameter that is accepted although nothing depends on it."""

    values: tuple[str, ...]
    """Accepted values, compared in lower case; empty: any text."""
    why: str
    """Why accepting it promises nothing that is not kept."""


HONOURED: Final = ("encoding", "sample_rate", "channels", "interim_results")

INERT: Final[dict[str, Inert]] = {
    "model": Inert(
        values=(
            "moonshine",
            "moonshine-live",
            "moonshine-base",
            "general",
            *(f"nova{version}{use}" for version in ("", "-2", "-3") for use in ("", "-general")),
        ),
        why="A name that clients must send. The models of the configuration answer; model_info says which.",
    ),
    "version": Inert(values=("latest",), why="There is one version, in model_info."),
    "language": Inert(
        values=("en", "en-us", "en-gb", "en-au", "en-in", "en-nz"), why="The models read English, however it is spoken."
    ),
    "punctuate": Inert(values=("true",), why="The models write punctuation themselves."),
    "smart_format": Inert(values=BOOLEANS, why="Text is given as the models write it; nothing is rewritten."),
    "alternatives": Inert(values=("1",), why="There is one reading."),
    "diarize": Inert(values=("false",), why="Speakers are not told apart."),
    "dictation": Inert(values=("false",), why="Spoken commands are text like any other."),
    "multichannel": Inert(values=("false",), why="Audio is mono."),
    "numerals": Inert(values=("false",), why="Numbers are given as the models write them."),
    "profanity_filter": Inert(values=("false",), why="Nothing is masked."),
    "redact": Inert(values=("false",), why="Nothing is masked."),
    "vad_events": Inert(values=("false",), why="SpeechStarted is not sent."),
    "endpointing": Inert(values=("true",), why="Utterances always end at pauses, by the setting of the service."),
    "no_delay": Inert(values=BOOLEANS, why="No result waits for formatting."),
    "mip_opt_out": Inert(values=BOOLEANS, why="No audio is kept."),
    "tag": Inert(values=(), why="A label of the client's own."),
    "extra": Inert(values=(), why="A label of the client's own."),
}
REPEATABLE: Final = frozenset({"tag", "extra"})


def parse_query(query: str) -> SessionOptions:
    """The options in a query string (without the question mark).

    Raises:
        BadQuery: A parameter is unknown, given twice, or has a value that is not allowed.
    """
    values = _values(query)
    _choice(values, "encoding", ("linear16",))
    _choice(values, "channels", ("1",))
    return SessionOptions(
        sample_rate=_sample_rate(values.get("sample_rate")),
        interim_results=_choice(values, "interim_results", BOOLEANS) == "true",
    )


def _values(query: str) -> dict[str, str]:
    """Every parameter once; the inert ones are checked and left out."""
    if len(query) > MAX_QUERY_CHARS:
        raise BadQuery(parameter="(all)", value=f"{query[:40]}…", allowed=f"at most {MAX_QUERY_CHARS} characters")
    values: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in values and name not in REPEATABLE:
            raise BadQuery(parameter=name, value=value, allowed="to be given once")
        values[name] = value
        if name in INERT:
            _check_inert(name, value)
        elif name not in HONOURED:
            raise BadQuery(parameter=name, value=None, allowed=", ".join((*HONOURED, *INERT)))
    return values


def _check_inert(name: str, value: str) -> None:
    allowed = INERT[name].values
    if allowed and value.lower() not in allowed:
        raise BadQuery(parameter=name, value=value, allowed=", ".join(allowed))


def _choice(values: dict[str, str], name: str, allowed: tuple[str, ...]) -> str | None:
    value = values.get(name)
    if value is not None and value not in allowed:
        raise BadQuery(parameter=name, value=value, allowed=", ".join(allowed))
    return value


def _sample_rate(value: str | None) -> int:
    if value is None:
        return MODEL_RATE
    # isdecimal alone would let digits of other scripts through
    rate = int(value) if value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_RATE)) else 0
    if not MIN_RATE <= rate <= MAX_RATE:
        raise BadQuery(parameter="sample_rate", value=value, allowed=f"an integer from {MIN_RATE} to {MAX_RATE}")
    return rate
