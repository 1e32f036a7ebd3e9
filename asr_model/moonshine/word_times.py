"""Word times from the decoder's alignment heads, the same way for live and final text.

The heads' mean attention tells from which encoder frame each token was read. Where in a word that frame lies differs
little between words, so two constant offsets, calibrated on hand-checked alignments, give a word's start and end.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from asr_model.moonshine.dimensions import FRAME_SAMPLES, SAMPLE_RATE
from asr_model.moonshine.tokenizer import Tokenizer
from asr_model.transcript import Word

FRAME_S: Final = FRAME_SAMPLES / SAMPLE_RATE
START_OFFSET_S: Final = -0.05
"""From the frame that a word's first token was read from to the word's start."""
END_OFFSET_S: Final = 0.15
"""From the frame that a word's last token was read from to the word's end, where no other word follows at once."""
SHORTEST_S: Final = 0.024
"""Least duration of a word."""


def timed_words(
    tokenizer: Tokenizer, tokens: Sequence[int], frames: Sequence[int], confidences: Sequence[float], *, n_frames: int
) -> tuple[Word, ...]:
    """The tokens' words with their times.

    Args:
        tokenizer: the vocabulary.
        tokens: of one utterance, without START and END.
        frames: of each token, the frame it was read from, from 0 to below ``n_frames``.
        confidences: of each token, its probability.
        n_frames: frames of the utterance's audio, from which times count.

    Returns:
        Words whose starts and ends never go back, whose end is after their start, all of it inside the audio.
    """
    if not tokens:
        return ()
    spans = list(_word_spans(tokenizer, tokens))
    audio_s = n_frames * FRAME_S
    first_s = [frames[begin] * FRAME_S + START_OFFSET_S for begin, _ in spans]
    last_s = [frames[end - 1] * FRAME_S + END_OFFSET_S for _, end in spans]
    starts_s, ends_s = _in_order(first_s, last_s, audio_s)
    return tuple(
        Word(
            text=tokenizer.text(tokens[begin:end]),
            start_s=start_s,
            end_s=end_s,
            confidence=sum(confidences[begin:end]) / (end - begin),
        )
        for (begin, end), start_s, end_s in zip(spans, starts_s, ends_s, strict=True)
    )


def _word_spans(tokenizer: Tokenizer, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First token of each word and one past its last. A piece of nothing but spaces belongs to the word after it."""
    begin = 0
    for at in range(1, len(tokens) + 1):
        closes = at == len(tokens) or tokenizer.opens_word[tokens[at]]
        if closes and tokenizer.text(tokens[begin:at]):
            yield begin, at
            begin = at


def _in_order(starts_s: list[float], ends_s: list[float], audio_s: float) -> tuple[list[float], list[float]]:
    """Moves times as little as needed: starts rise by at least the shortest word, each word ends before the next."""
    latest_s = audio_s
    for i in reversed(range(len(starts_s))):
        latest_s -= SHORTEST_S
        starts_s[i] = min(starts_s[i], latest_s)
        latest_s = starts_s[i]
    earliest_s = 0.0
    for i in range(len(starts_s)):
        starts_s[i] = max(starts_s[i], earliest_s)
        earliest_s = starts_s[i] + SHORTEST_S
    limits_s = [*starts_s[1:], max(audio_s, earliest_s)]
    ends_s = [
        max(start_s + SHORTEST_S, min(end_s, limit_s))
        for start_s, end_s, limit_s in zip(starts_s, ends_s, limits_s, strict=True)
    ]
    return starts_s, ends_s
