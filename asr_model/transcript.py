"""What models say: words with times, free of torch, so that every layer of the service may name them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

NEUTRAL_SCORE: Final = 1 / 3
"""Scores of a sentiment nearer to 0 are neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word as the decoder wrote it, punctuation and case included."""

    text: str
    start_s: float
    """Seconds from the first sample of the sequence (live) or of the request (final)."""
    end_s: float
    confidence: float
    """Mean probability of its tokens, 0 to 1."""
    margin: float | None = None
    """How far the nearest of its tokens was from being another: the least difference between the two greatest logits.
    None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentiment:
    """How a text sounds."""

    label: str
    """``positive``, ``neutral`` or ``negative``."""
    score: float
    """From -1, negative, to 1, positive."""

    @classmethod
    def of(cls, score: float) -> "Sentiment":
        """With the word for a score: those nearer to 0 than a third are neutral."""
        is_neutral = abs(score) < NEUTRAL_SCORE
        return cls(label="neutral" if is_neutral else "positive" if score > 0 else "negative", score=score)


ROUNDING_MARGIN: Final[Mapping[str, float]] = {"float32": 0.001, "bfloat16": 0.4, "int8": 0.05}
"""By ``ModelSpec.precision``: a token whose margin is less may be another one in another batch, for products round in
another order there. Forty times (bfloat16: twice, int8: seven times) the furthest that the margin of a word was
seen to move between a sequence alone and the same one in random company, catching up by random numbers of ticks."""


def joined(words: tuple[Word, ...]) -> str:
    """The words as one line of text."""
    return " ".join(word.text for word in words)


class UtteranceEnd(Enum):
    """Why an utterance ended."""

    ENDPOINT = "endpoint"
    """Enough trailing silence."""
    LENGTH = "length"
    """It grew to the maximum length and was cut after its last committed word."""
    FINALIZE = "finalize"
    """The client asked for a flush; the sequence goes on."""
    END = "end"
    """The sequence ended."""
    STALL = "stall"
    """The decoder would not go on although speech did. The live model reads on instead; others may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedUtterance:
    """One utterance, complete. Empty ``words``: nothing was said in it."""

    cause: UtteranceEnd
    first_sample: int
    """Where its audio starts in the sequence (speech onset with some lead)."""
    end_sample: int
    """One past its last sample: where the next utterance's audio may start."""
    words: tuple[Word, ...]
    tail_samples: int = 0
    """Samples at its end in which nothing is said, so that nobody needs to read them."""

    @property
    def audio(self) -> "AudioRange":
        """What is to be read of it."""
        return AudioRange(first_sample=self.first_sample, end_sample=self.end_sample - self.tail_samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioRange:
    """Samples of a sequence."""

    first_sample: int
    end_sample: int
    """One past the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutput:
    """What one row of a live step says."""

    encoded_samples: int
    """Samples of the sequence that the encoder has taken in, all of them covered by this output."""
    committed: tuple[Word, ...]
    """Committed words of the utterance that is open after the step: a commitment stands.

    Punctuation may still follow the last of them.
    """
    draft: tuple[Word, ...]
    """The rest of the hypothesis; it may change."""
    ended: EndedUtterance | None
    """The utterance that ended in this step. A flush always ends one, even if empty."""
    keep_from_sample: int
    """Audio before this sample is needed by no later utterance."""
    is_speech: bool
    """Whether the row held speech behind what a flush ended."""
    speech_from_sample: int | None = None
    """Where the first speech of the row begins; None without speech."""
    speech_until_sample: int | None = None
    """Where the last speech of the row ends; None without speech."""
    likely: AudioRange | None = None
    """In a pause: the audio of the open utterance if it ends before there is speech again. None while there is speech.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalOutput:
    """What the final model says of one utterance; word times count from the first sample of its audio."""

    words: tuple[Word, ...]
