"""Forced alignment: when the words of a known text are spoken. The yardstick for word delays and word times.

The decoder reads the given text instead of choosing its own; the frames from which its alignment heads read the
tokens, made to go forward, give each word's start. A word ends where the next one starts, unless the sound has died
away before. Long audio is aligned window by window, which pauses of ten seconds inside of it can lead astray.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from asr_model.contract import Samples
from asr_model.final.features import Features, encode
from asr_model.moonshine.alignment_heads import attended
from asr_model.moonshine.dimensions import SAMPLE_RATE, START
from asr_model.moonshine.layers import Decoder, angles, join_heads, rotate, split_heads
from asr_model.moonshine.weights import MoonshineWeights, load_weights
from asr_model.moonshine.word_times import FRAME_S, LETTER_S, PIECE_S, READ_AFTER_START_S
from asr_model.transcript import Word

SHORTEST_SAMPLES: Final = SAMPLE_RATE // 10
WINDOW_S: Final = 24.0
"""Longer audio is aligned in windows: the decoder was taught on utterances."""
WINDOW_END_S: Final = 5.0
"""Words that start this near to a window's end wait for the next window, unless it is the last."""
WINDOW_LEAD_S: Final = 0.3
"""The next window starts this long before the next word."""
WORDS_PER_SECOND: Final = 5
"""No one speaks faster for long: bounds the text that is read with a window."""
NEAR_FRAMES: Final = 20
"""Around the best frame of a token, how far its attention counts for the exact place."""
LEVEL_SAMPLES: Final = SAMPLE_RATE // 100
LEVEL_S: Final = LEVEL_SAMPLES / SAMPLE_RATE
"""The sound's level is taken in steps of this length."""
RISEN: Final = 0.12
"""A word has begun where the sound is above this share of the way, in dB, from the background to its loudest."""
DIED_AWAY: Final = 0.35
"""It has died away where the sound stays below this share."""
END_PLAY_S: Final = 0.25
"""How far the level may move a word's end from where its last piece usually ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Where a word's first and last token are read, less what they are read late, in seconds."""

    first_s: float
    last_s: float
    last_letters: int
    confidence: float


class Aligner:
    """Finds the words of a text in speech that says it."""

    def __init__(self, weights: MoonshineWeights | None = None) -> None:
        """Loads the model; from where ``load_weights`` finds it, and raising as it does, unless weights are given."""
        weights = weights or load_weights()
        self._encoder = weights.encoder()
        self._decoder = weights.decoder()
        self._tokenizer = weights.tokenizer()

    def word_ends(self, audio: Samples, words: Sequence[str]) -> list[float]:
        """Seconds at which the words end; as ``word_times``."""
        return [word.end_s for word in self.word_times(audio, words)]

    @torch.inference_mode()
    def word_times(self, audio: Samples, words: Sequence[str]) -> list[Word]:
        """The words with their times, and as confidence how probable the decoder held them.

        Args:
            audio: float32 [N].
            words: what is said in it, in order; case does not matter, punctuation little.

        Raises:
            ValueError: the audio is shorter than 0.1 s, or a word is empty.
        """
        if len(audio) < SHORTEST_SAMPLES:
            raise ValueError("the audio is shorter than 0.1 s")
        if not all(word.strip() for word in words):
            raise ValueError("a word to align is empty")
        placed = self._placed(audio, words)
        return [
            Word(text=word, start_s=start_s, end_s=end_s, confidence=place.confidence)
            for word, place, (start_s, end_s) in zip(words, placed, _spans_s(audio, placed), strict=True)
        ]

    def _placed(self, audio: Samples, words: Sequence[str]) -> list[_Placed]:
        placed: list[_Placed] = []
        audio_s = len(audio) / SAMPLE_RATE
        start_s = 0.0
        while len(placed) < len(words):
            is_last = start_s + WINDOW_S >= audio_s - SHORTEST_SAMPLES / SAMPLE_RATE
            window = audio[int(start_s * SAMPLE_RATE) :][: None if is_last else int(WINDOW_S * SAMPLE_RATE)]
            text = words[len(placed) :] if is_last else words[len(placed) :][: int(WINDOW_S * WORDS_PER_SECOND)]
            found = self._window(window, text, start_s)
            limit_s = start_s + WINDOW_S - WINDOW_END_S
            sure = found if is_last else [place for place in found if place.first_s < limit_s]
            placed += sure
            waiting_s = found[len(sure)].first_s if len(sure) < len(found) else start_s + WINDOW_S
            start_s = min(waiting_s, limit_s) - WINDOW_LEAD_S if sure else limit_s
        return placed

    def _window(self, audio: Samples, words: Sequence[str], start_s: float) -> list[_Placed]:
        pieces = [self._tokenizer.tokens(word.lower()) for word in words]
        tokens = [token for word in pieces for token in word]
        features = encode(self._encoder, [audio], torch.device("cpu"), lambda: None)
        logits, attention = read_text(self._decoder, features, [START, *tokens])
        chosen = logits[: len(tokens)].softmax(-1).gather(-1, torch.tensor(tokens)[:, None])[:, 0].tolist()
        read_s = (start_s + forward_path(attention.numpy()) * FRAME_S - READ_AFTER_START_S).clip(0).tolist()
        placed = []
        first = 0
        for word in pieces:
            past = first + len(word)
            placed.append(
                _Placed(
                    first_s=read_s[first],
                    last_s=read_s[past - 1],
                    last_letters=len(self._tokenizer.text(word[-1:])),
                    confidence=sum(chosen[first:past]) / len(word),
                )
            )
            first = past
        return placed


def read_text(decoder: Decoder, features: Features, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Has the decoder read a text in one pass.

    Args:
        decoder: on the CPU.
        features: of one row.
        tokens: L of them, START first.

    Returns:
        Logits [L, V] and the attention [L, T] of the alignment heads; position i is about the token after i.
    """
    x = decoder.embed(torch.tensor([tokens]))
    cos, sin = angles(torch.arange(len(tokens)))
    attention = torch.zeros(())
    for i, layer in enumerate(decoder.layers):
        q, k, v = (split_heads(part) for part in layer.project_own(x))
        own = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x, asked = layer.after_own(x, join_heads(own))
        keys, values = layer.memory(features.values)
        asked = split_heads(asked)
        x = layer.finish(x, join_heads(F.scaled_dot_product_attention(asked, keys, values)))
        if (part := attended(i, asked, keys, None)) is not None:
            attention = attention + part[0]
    return decoder.logits(x)[0], attention[:, : features.heard[0]]


def forward_path(attention: NDArray[np.float32]) -> NDArray[np.float64]:
    """The places from which tokens are read, none before that of the token before.

    Args:
        attention: [L, T].

    Returns:
        float64 [L], in frames: of all paths that go forward the one with the greatest product of attention, each
        place moved to the centre of the attention around it.
    """
    n_tokens, n_frames = attention.shape
    score = np.log(attention + 1e-4)
    came_from = np.zeros((n_tokens, n_frames), np.int64)
    best = np.zeros(n_frames)
    for i in range(n_tokens):
        reached = np.maximum.accumulate(best)
        came_from[i] = np.maximum.accumulate(np.where(best >= reached, np.arange(n_frames), 0))
        best = reached + score[i]
    path = np.zeros(n_tokens, np.int64)
    at = int(best.argmax())
    for i in reversed(range(n_tokens)):
        path[i] = at
        at = came_from[i, at]
    places = [_centre_near(row, frame) for row, frame in zip(attention, path.tolist(), strict=True)]
    return np.maximum.accumulate(np.array(places))


def _centre_near(row: NDArray[np.float32], frame: int) -> float:
    first = max(0, frame - NEAR_FRAMES)
    near = row[first : frame + NEAR_FRAMES + 1].astype(np.float64)
    passed = np.cumsum(near)
    half = passed[-1] / 2
    at = int(np.searchsorted(passed, half))
    return float(first + at + 1 - (passed[at] - half) / max(near[at], 1e-9))


def _spans_s(audio: Samples, placed: Sequence[_Placed]) -> list[tuple[float, float]]:
    """Starts and ends of words, moved by the sound's level where there is a pause.

    A word that is read in a pause starts with the sound after it. It ends where the next one starts, or before that
    where the sound has died away.
    """
    squares = audio[: len(audio) // LEVEL_SAMPLES * LEVEL_SAMPLES].reshape(-1, LEVEL_SAMPLES).astype(np.float64) ** 2
    level_db = 10 * np.log10(squares.mean(1) + 1e-10)
    background_db = float(np.percentile(level_db, 5))
    limits_s = [*(place.first_s for place in placed), len(audio) / SAMPLE_RATE][1:]
    spans_s = []
    for place, limit_s in zip(placed, limits_s, strict=True):
        usual_s = place.last_s + PIECE_S + LETTER_S * place.last_letters
        sound = _steps_above(level_db, background_db, RISEN, (place.first_s, min(limit_s, usual_s)))
        start_s = max(place.first_s, sound[0]) if sound else place.first_s
        usual_s += start_s - place.first_s
        end_s = limit_s
        if limit_s > usual_s - END_PLAY_S:
            sound = _steps_above(level_db, background_db, DIED_AWAY, (start_s, min(limit_s, usual_s + END_PLAY_S)))
            end_s = min(limit_s, max(sound[1] if sound else start_s, usual_s - END_PLAY_S))
        spans_s.append((start_s, max(end_s, start_s + LEVEL_S)))
    return spans_s


def _steps_above(
    level_db: NDArray[np.float64], background_db: float, share: float, span_s: tuple[float, float]
) -> tuple[float, float] | None:
    """Where in a span the level is first and last above a share of the way from the background to its loudest; None
    where nothing rises above the background.
    """
    first, past = (int(at_s / LEVEL_S) for at_s in span_s)
    levels = level_db[first:past]
    if not len(levels):
        return None
    if levels.max() <= background_db:
        return None
    above = np.flatnonzero(levels >= background_db + share * (levels.max() - background_db))
    return (first + int(above[0])) * LEVEL_S, (first + int(above[-1]) + 1) * LEVEL_S
