"""The query of ``POST /v1/listen``: that of live streams, as far as it has a meaning for recordings, and more."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from server.codec.audio_format import ENCODINGS, AudioFormat
from server.wire.parameters import BOOLEAN, FALSE, NOTHING, PARAMETERS, Choice, Decimal, Parameter, Support, Values
from server.wire.query import audio_format, check_together, flag, given_values, text_format
from server.wire.text_format import TextFormat

LIVE_ALONE: Final[Mapping[str, Values]] = {
    "interim_results": FALSE,
    "endpointing": FALSE,
    "utterance_end_ms": NOTHING,
    "vad_events": FALSE,
    "no_delay": FALSE,
}
"""Without a meaning here; taken where they ask for nothing."""
DEFAULT_SPLIT_S: Final = 0.8
NOTES: Final[Mapping[str, str]] = {
    "multichannel": "The words of each channel by themselves. Needs channels; a container must have that many. Counts "
    "as so many streams and so much audio of the key.",
    "sentiment": "The sentiment of each utterance and their mean, where the service is configured to tell it "
    "(final.sentiment); else true is refused.",
    "tag": "Echoed as tags in the metadata.",
    "extra": "Echoed as extra in the metadata.",
    "summarize": "There are no summaries.",
    "topics": "There are no topics.",
    "intents": "There are no intents.",
}
"""Of parameters that mean something else here."""
ENCODING_NOTE: Final = (
    "How raw audio is encoded. Leave it out for files: WAV, FLAC, Ogg, WebM, MP3, AAC, fragmented MP4. opus alone is "
    "not taken: its packets have no bounds in a body; Ogg has them."
)


def _table() -> dict[str, Parameter]:
    """By name; those of live streams first."""
    table = dict(PARAMETERS)
    for name, values in LIVE_ALONE.items():
        table[name] = Parameter(
            support=Support.REFUSED, values=values, default="–", note="Of live streams only: this is a recording."
        )
    for name, note in NOTES.items():
        table[name] = replace(table[name], note=note)
    table["tag"] = replace(table["tag"], support=Support.SUPPORTED)
    table["encoding"] = replace(
        table["encoding"], values=Choice(tuple(each for each in ENCODINGS if each != "opus")), note=ENCODING_NOTE
    )
    table |= {
        "utterances": Parameter(
            support=Support.SUPPORTED,
            values=BOOLEAN,
            default="false",
            note="The words in stretches without a pause of utt_split, beside the channels.",
        ),
        "utt_split": Parameter(
            support=Support.SUPPORTED,
            values=Decimal(least=0.1, most=60.0),
            default=f"{DEFAULT_SPLIT_S}",
            note="Seconds between two words from which a new utterance begins.",
        ),
        "paragraphs": Parameter(
            support=Support.SUPPORTED,
            values=BOOLEAN,
            default="false",
            note="The sentences of each channel in paragraphs: a pause of 1.5 s or 5 sentences begin another.",
        ),
        "custom_topic": _refused("There are no topics."),
        "custom_topic_mode": _refused("There are no topics."),
        "custom_intent": _refused("There are no intents."),
        "custom_intent_mode": _refused("There are no intents."),
    }
    return table


def _refused(note: str) -> Parameter:
    return Parameter(support=Support.REFUSED, values=NOTHING, default="–", note=note)


RECORDING_PARAMETERS: Final[Mapping[str, Parameter]] = _table()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """What a client asked for."""

    audio: AudioFormat = field(default_factory=AudioFormat)
    multichannel: bool = False
    """Every channel by itself; else they are mixed to one."""
    text: TextFormat = field(default_factory=TextFormat)
    utterances: bool = False
    split_s: float = DEFAULT_SPLIT_S
    """Between two words, from which a new utterance begins."""
    paragraphs: bool = False
    sentiment: bool = False
    tags: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


def parse_recording_query(query: str, models: Collection[str] = ()) -> RecordingOptions:
    """The options in a query string (without the question mark).

    Args:
        query: As it came.
        models: Names that ``model`` may have beside those that are always taken.

    Raises:
        BadQuery: A parameter is unknown, given twice, has a value that is not allowed, or needs another one.
    """
    given = given_values(query, RECORDING_PARAMETERS, models)
    plain = {name: values[0] for name, values in given.items()}
    check_together(plain)
    return RecordingOptions(
        audio=audio_format(plain),
        multichannel=flag(plain, "multichannel"),
        text=text_format(plain),
        utterances=flag(plain, "utterances"),
        split_s=float(plain.get("utt_split", DEFAULT_SPLIT_S)),
        paragraphs=flag(plain, "paragraphs"),
        sentiment=flag(plain, "sentiment"),
        tags=tuple(given.get("tag", ())),
        extra=tuple((key, value) for key, _, value in (label.partition(":") for label in given.get("extra", ()))),
    )
