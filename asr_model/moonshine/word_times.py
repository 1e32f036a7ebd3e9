"""Word times from the decoder's alignment heads, the same way for live and final text.

The heads' mean attention, as a token is said, lies on the word's beginning. A word starts where its first token was
read, less a constant. It ends where the next one starts, unless that is further off than the word can last: then there
is a pause, and the word ends after its last piece's usual duration. The constants are calibrated on forced alignments
of LibriSpeech's train-clean-100.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from asr_model.moonshine.dimensions import FRAME_SAMPLES, SAMPLE_RATE
from asr_model.moonshine.tokenizer import Tokenizer
from asr_model.transcript import Word

FRAME_S: Final = FRAME_SAMPLES / SAMPLE_RATE
READ_AFTER_START_S: Final = 0.037
"""From a word's start to where its first token is read."""
PIECE_S: Final = 0.22
LETTER_S: Final = 0.05
"""A word's last piece before a pause lasts PIECE_S and LETTER_S for each of its letters."""
SHORTEST_S: Final = 0.024
"""Least duration of a word."""


def timed_words(
    tokenizer: Tokenizer, tokens: Sequence[int], frames: Sequence[float], confidences: Sequence[float], *, n_frames: int
) -> tuple[Word, ...]:
    """The tokens' words with their times.

    Args:
        tokenizer: the vocabulary.
        tokens: of one utterance, without START and END.
        frames: of each token, the frame it was read from: the centre of the attention or, less exact, its maximum.
        confidences: of each token, its probability.
        n_frames: frames of the utterance's audio, from which times count.

    Returns:
        Words whose starts and ends never go back, whose end is after their start, all of it inside the audio.
    """
    read_s = [frame * FRAME_S - READ_AFTER_START_S for frame in frames]
    spans = list(word_spans(tokenizer, tokens))
    if not spans:  # tokens that spell nothing
        return ()
    starts_s = [read_s[begin] for begin, _ in spans]
    ends_s = [_latest_end_s(tokenizer, tokens, read_s, span) for span in spans]
    _put_in_order(starts_s, ends_s, n_frames * FRAME_S)
    return tuple(
        Word(
            text=tokenizer.text(tokens[begin:end]),
            start_s=start_s,
            end_s=end_s,
            confidence=sum(confidences[begin:end]) / (end - begin),
        )
        for (begin, end), start_s, end_s in zip(spans, starts_s, ends_s, strict=True)
    )


def word_spans(tokenizer: Tokenizer, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First token of each word and one past its last. A piece of nothing but spaces belongs to the word after it."""
    begin = 0
    for at in range(1, len(tokens) + 1):
        closes = at == len(tokens) or tokenizer.opens_word[tokens[at]]
        if closes and tokenizer.text(tokens[begin:at]):
            yield begin, at
            begin = at


def _latest_end_s(tokenizer: Tokenizer, tokens: Sequence[int], read_s: Sequence[float], span: tuple[int, int]) -> float:
    """End of a word as if a pause followed: its last piece, punctuation left out, lasts as long as usual."""
    begin, last = span[0], span[1] - 1
    while last > begin and not _is_spoken(tokenizer.text([tokens[last]])):
        last -= 1
    return read_s[last] + PIECE_S + LETTER_S * len(tokenizer.text([tokens[last]]))


def _is_spoken(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _put_in_order(starts_s: list[float], ends_s: list[float], audio_s: float) -> None:
    """Moves times as little as needed: starts rise by at least the shortest word, each word ends before the next."""
    shortest_s = min(SHORTEST_S, audio_s / max(1, len(starts_s)))
    latest_s = audio_s
    for i in reversed(range(len(starts_s))):
        latest_s = starts_s[i] = min(starts_s[i], latest_s - shortest_s)
    earliest_s = 0.0
    for i, start_s in enumerate(starts_s):
        starts_s[i] = max(start_s, earliest_s)
        earliest_s = starts_s[i] + shortest_s
    for i, limit_s in enumerate([*starts_s[1:], audio_s]):
        ends_s[i] = min(max(starts_s[i] + shortest_s, ends_s[i]), limit_s)
