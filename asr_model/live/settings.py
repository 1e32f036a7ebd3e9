"""Settings of the live model: how it reads, when it ends an utterance."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from asr_model import optimize_names

FRAME_MS = 24
TICK_FRAMES = 10
"""Encoder frames of a tick: 240 ms. The checkpoint was trained for it."""
MAX_TICKS = 4
"""Ticks of a late sequence that go through the encoder together, at most."""
NEVER_FRAMES = 2**40
"""A silence that no sequence reaches."""
UNREAD_FRAMES = 60
"""Speech that goes on this far (1.44 s) beyond the furthest token read has not been read."""
PASSAGES = 16
"""Room for the tokens that begin passages."""
TOKENS_PER_FRAME, SPARE_TOKENS = 0.024 * 6.5, 8
"""Nobody speaks more than 6.5 tokens a second for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """Everything about the live model that may be configured (``[live.options]``)."""

    checkpoint: str = ""
    """Path of a safetensors checkpoint; empty: the one that comes with the package."""
    weights: str = ""
    """Where Moonshine's decoder and tokenizer are; empty: see ``asr_model.moonshine.weights``."""
    optimize: str = "none"
    """Number format of matrix products: none (float32), bf16 or int8."""
    left_frames: int = 166
    """Encoder frames before its tick that a frame attends to, 10 to 1000."""
    agree: int = 2
    """Times that a token must have been chosen before it may be committed, 1 to 8."""
    hold_words: int = 1
    """Words at the end of the hypothesis that are never committed, 1 to 8."""
    extend: int = 3
    """One-token passes a tick after the verifying pass, 0 to 8."""
    draft_tokens: int = 16
    """Longest hypothesis beyond the committed tokens, 4 to 32."""
    edge_frames: int = 8
    """A token read from fewer frames before the newest one is not committed yet, 0 to 100."""
    back_frames: int = 8
    """A token read from more frames than this before the furthest one ends the hypothesis, 0 to 100."""
    endpoints: bool = True
    """End utterances at silence and at the maximum length. Off: only Finalize and END do."""
    skip_silence: bool = True
    """Open an utterance at speech and do not read ticks without speech."""
    guards: bool = True
    """Stop repeats that do not advance in the audio, and a decoder that ends while speech goes on."""
    speech_probability: float = 0.1
    """A frame is speech if its CTC symbol is no blank with at least this probability, 0.001 to 0.999."""
    endpoint_silence_ms: int = 800
    """Silence that ends an utterance, 240 to 10000. It shrinks to 240 as an utterance nears its maximum length, so that
    long utterances end at a short pause rather than in mid-speech."""
    sentence_silence_ms: int = 600
    """Silence that ends an utterance of which the decoder says that it is complete, 240 to 10000."""
    lead_in_ms: int = 480
    """Audio before the tick in which speech was found that belongs to the utterance, 0 to 2000."""
    max_utterance_s: float = 20.0
    """Longest utterance; then it is cut after its last committed word. 2 to 60."""

    def __post_init__(self) -> None:
        optimize_names.check(self.optimize, "moonshine-live")
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"live option {name} = {value}: allowed is {low} to {high}")

    @classmethod
    def of(cls, options: Mapping[str, object]) -> "LiveSettings":
        """Settings from a configuration table.

        Raises:
            ValueError: an unknown name, a value of the wrong type or out of bounds.
        """
        known = {field.name: field for field in fields(cls)}
        for name, value in options.items():
            if name not in known:
                raise ValueError(f"unknown live option {name}: known are {', '.join(sorted(known))}")
            wanted = type(known[name].default)
            fits = isinstance(value, (int, float)) if wanted is float else isinstance(value, wanted)
            if not fits or (isinstance(value, bool) and wanted is not bool):
                raise ValueError(f"live option {name} = {value!r}: wanted is {wanted.__name__}")
        return cls(**options)  # type: ignore[arg-type]

    @property
    def ring_frames(self) -> int:
        """Frames of the encoder's key/value ring: the left context in whole ticks, and the ticks of a step."""
        return (-(-self.left_frames // TICK_FRAMES) + MAX_TICKS) * TICK_FRAMES

    @property
    def lead_in_frames(self) -> int:
        """Lead-in in frames, whole ticks."""
        return round(self.lead_in_ms / 240) * TICK_FRAMES

    @property
    def endpoint_frames(self) -> int:
        """Trailing silent frames that end an utterance of up to half the maximum length."""
        return silence_frames(self.endpoint_silence_ms)

    @property
    def sentence_frames(self) -> int:
        """Trailing silent frames that end a complete utterance."""
        return silence_frames(self.sentence_silence_ms)

    @property
    def max_utterance_frames(self) -> int:
        """Frames at which an utterance is cut, whole ticks."""
        return int(self.max_utterance_s * 1000 / 240) * TICK_FRAMES

    @property
    def memory_frames(self) -> int:
        """Frames of cross-attention memory a slot has room for: the longest utterance, its lead-in and a flush."""
        return self.max_utterance_frames + self.lead_in_frames + 2 * TICK_FRAMES

    @property
    def token_capacity(self) -> int:
        """Tokens of an utterance a slot has room for."""
        return token_limit(self.memory_frames) + self.draft_tokens + self.extend + 2 + PASSAGES


_BOUNDS = {
    "left_frames": (10, 1000),
    "agree": (1, 8),
    "hold_words": (1, 8),
    "extend": (0, 8),
    "draft_tokens": (4, 32),
    "edge_frames": (0, 100),
    "back_frames": (0, 100),
    "speech_probability": (0.001, 0.999),
    "endpoint_silence_ms": (240, 10_000),
    "sentence_silence_ms": (240, 10_000),
    "lead_in_ms": (0, 2000),
    "max_utterance_s": (2, 60),
}


def silence_frames(silence_ms: int) -> int:
    """Frames of a silence that ends an utterance: at least a tick, for less also lies within words; 0 ms: none does."""
    return max(TICK_FRAMES, -(-silence_ms // FRAME_MS)) if silence_ms else NEVER_FRAMES


def token_limit(frames: int) -> int:
    """Most tokens, START included, that an utterance of that many frames may have: 6.5 a second and 8."""
    return int(frames * TOKENS_PER_FRAME) + SPARE_TOKENS
