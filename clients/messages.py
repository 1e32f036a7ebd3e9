"""What the service says, as typed messages."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class Message(BaseModel):
    """What all messages have in common: unknown fields are ignored, as every client of a growing protocol must."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class AnyMessage(Message):
    """What stands in every message."""

    type: str


class WireWord(Message):
    """One word with its times in seconds of the sequence's audio."""

    word: str
    start: float
    end: float
    confidence: float
    punctuated_word: str | None = None


class Alternative(Message):
    """A transcript; there is one in every result."""

    transcript: str
    confidence: float = 0.0
    words: tuple[WireWord, ...] = ()


class Channel(Message):
    """The alternatives of the only channel."""

    alternatives: tuple[Alternative, ...] = Field(min_length=1)


class MoorageMetadata(Message):
    """Where and how a result was computed, and what the live model said."""

    sequence_id: str
    instance: int
    slot: int
    batch_size: int
    queue_ms: float
    step_ms: float
    utterance: int
    covered_s: float = 0.0
    committed_words: int = 0
    """Words of the transcript that stand, counted from its first."""
    live_text: str | None = None
    live_words: tuple[WireWord, ...] = ()


class ResultMetadata(Message):
    """Metadata of a result."""

    request_id: str = ""
    moorage: MoorageMetadata


class Results(Message):
    """The open utterance (interim), or a complete one (``is_final``)."""

    type: Literal["Results"]
    start: float
    duration: float
    is_final: bool
    speech_final: bool = False
    from_finalize: bool = False
    channel: Channel
    metadata: ResultMetadata

    @property
    def transcript(self) -> str:
        """The text."""
        return self.channel.alternatives[0].transcript

    @property
    def moorage(self) -> MoorageMetadata:
        """The service's own fields."""
        return self.metadata.moorage

    @property
    def live_text(self) -> str:
        """What the live model said: the transcript itself where a final names no other."""
        live = self.moorage.live_text
        return self.transcript if live is None else live

    def split(self) -> tuple[str, str]:
        """The transcript as its committed words and the rest, which may change."""
        written = [word.punctuated_word or word.word for word in self.channel.alternatives[0].words]
        stands = len(written) if self.is_final else self.moorage.committed_words
        return " ".join(written[:stands]), " ".join(written[stands:])


class Metadata(Message):
    """The last message of a stream that was answered in full."""

    type: Literal["Metadata"]
    request_id: str = ""
    duration: float = 0.0


class Refusal(Message):
    """Why something was refused; the connection ends with it where ``closes`` is true."""

    type: Literal["Error"]
    code: str = ""
    message: str = ""
    closes: bool = True


ServerMessage = Results | Metadata | Refusal
MESSAGE: TypeAdapter[ServerMessage] = TypeAdapter(Annotated[ServerMessage, Field(discriminator="type")])
KNOWN_TYPES = frozenset({"Results", "Metadata", "Error"})


def parse_message(raw: str | bytes) -> ServerMessage | None:
    """A message; None of a type that is not known: the protocol may grow.

    Raises:
        ValidationError: It is none, or a known one with wrong fields.
    """
    if AnyMessage.model_validate_json(raw).type not in KNOWN_TYPES:
        return None
    return MESSAGE.validate_json(raw)
