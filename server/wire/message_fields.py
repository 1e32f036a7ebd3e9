"""The fields of the messages of ``/v1/listen``, as Deepgram's live API names them."""

from typing import Literal, NotRequired, TypedDict


class WordMessage(TypedDict):
    """One word: ``word`` in lower case without punctuation, ``punctuated_word`` as the model wrote it."""

    word: str
    start: float
    end: float
    confidence: float
    punctuated_word: NotRequired[str]
    """Not with ``punctuate=false``."""


class Alternative(TypedDict):
    """One reading; there is always exactly one."""

    transcript: str
    confidence: float
    words: list[WordMessage]
    sentiment: NotRequired[str]
    """``positive``, ``neutral`` or ``negative``: of finals, with ``sentiment=true``."""
    sentiment_score: NotRequired[float]
    """From -1 to 1."""


class Channel(TypedDict):
    """One audio channel."""

    alternatives: list[Alternative]


class ModelInfo(TypedDict):
    """A model that answered."""

    name: str
    version: str
    arch: str


class MoorageInfo(TypedDict):
    """Where and how a result was computed."""

    sequence_id: str
    instance: int
    slot: int
    batch_size: int
    queue_ms: float
    step_ms: float
    utterance: int
    covered_s: float
    """Seconds of the sequence's audio that the result covers."""
    committed_words: int
    """The first so many words stand."""
    live_text: NotRequired[str]
    """What the live model itself said; of finals, as an interim result says nothing else."""
    live_words: NotRequired[list[WordMessage]]


class ResultsMetadata(TypedDict):
    """Metadata of one result."""

    request_id: str
    model_info: ModelInfo
    model_uuid: str
    moorage: MoorageInfo


class Results(TypedDict):
    """A reading of an utterance, interim or final."""

    type: Literal["Results"]
    channel_index: list[int]
    duration: float
    start: float
    is_final: bool
    speech_final: bool
    from_finalize: bool
    channel: Channel
    metadata: ResultsMetadata


class SpeechStartedMessage(TypedDict):
    """Speech begins."""

    type: Literal["SpeechStarted"]
    channel: list[int]
    timestamp: float


class UtteranceEndMessage(TypedDict):
    """Nothing was said for ``utterance_end_ms`` after the last word."""

    type: Literal["UtteranceEnd"]
    channel: list[int]
    last_word_end: float


class QueuedMessage(TypedDict):
    """The stream waits for a slot; audio is taken meanwhile."""

    type: Literal["Queued"]
    channel: list[int]
    position: int
    """1 is next; 0: it has its slot now."""
    expected_wait_ms: int | None


ResultMessage = Results | SpeechStartedMessage | UtteranceEndMessage | QueuedMessage


class Metadata(TypedDict):
    """The last message of a session that ended well."""

    type: Literal["Metadata"]
    transaction_key: str
    request_id: str
    sha256: str
    """Of the audio bytes as they came."""
    created: str
    duration: float
    channels: int
    models: list[str]
    model_info: dict[str, ModelInfo]
    extra: NotRequired[dict[str, str]]
    """Labels of the client's own, as the query had them."""


class ConfigureAnswer(TypedDict):
    """Whether a Configure message asked for what can be had."""

    type: Literal["ConfigureSuccess", "ConfigureFailure"]
    request_id: str
    code: NotRequired[str]
    description: NotRequired[str]


class Error(TypedDict):
    """Why something was refused; the connection closes after it where ``closes`` is true."""

    type: Literal["Error"]
    code: str
    variant: str
    """The code once more, in the form that Deepgram's clients read; ``SchemaError`` for a bad message."""
    message: str
    description: str
    """The message once more, likewise."""
    closes: bool
