"""From the tensors of a step to what its rows say: words with times, per row, on the host."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live.reader import Hypothesis
from asr_model.moonshine.dimensions import FRAME_SAMPLES, SAMPLE_RATE, START
from asr_model.moonshine.tokenizer import Tokenizer
from asr_model.moonshine.word_times import timed_words, word_spans
from asr_model.transcript import Word

FRAME_S = FRAME_SAMPLES / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one row with their evidence. A START among them is where a passage begins."""

    ids: list[int]
    centres: list[float]
    """Memory positions they were read from."""
    probabilities: list[float]
    margins: list[float]
    """See ``cached_decoder.Choice``."""

    def __getitem__(self, part: slice) -> "Tokens":
        return Tokens(self.ids[part], self.centres[part], self.probabilities[part], self.margins[part])

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.ids + other.ids,
            self.centres + other.centres,
            self.probabilities + other.probabilities,
            self.margins + other.margins,
        )


def committed_tokens(slots: Tensor, state: State) -> list[Tokens]:
    """The committed tokens of int64 [B] slots, without START."""
    counts = state["token_count"][slots].tolist()
    names = ("tokens", "token_centres", "token_probabilities", "token_margins")
    width = max(counts)
    columns = (state[name][slots, :width].tolist() for name in names)
    return [Tokens(*parts)[1:n] for n, *parts in zip(counts, *columns, strict=True)]


def draft_tokens(slots: Tensor, state: State) -> list[Tokens]:
    """The drafts of int64 [B] slots."""
    sizes = state["draft_size"][slots].tolist()
    names = ("draft", "draft_centres", "draft_probabilities", "draft_margins")
    columns = (state[name][slots].tolist() for name in names)
    return [Tokens(*parts)[:n] for n, *parts in zip(sizes, *columns, strict=True)]


def hypothesis_tokens(h: Hypothesis) -> list[Tokens]:
    """All tokens of the hypotheses."""
    width = int(h.size.max())
    columns = (x[:, :width].tolist() for x in (h.tokens, h.centres, h.probabilities, h.margins))
    return [Tokens(*parts)[:n] for n, *parts in zip(h.size.tolist(), *columns, strict=True)]


def spoken(tokens: Tokens) -> Tokens:
    """The tokens without what only begins a passage."""
    if START not in tokens.ids:
        return tokens
    said = [at for at, token in enumerate(tokens.ids) if token != START]
    ids, centres, probabilities, margins = tokens.ids, tokens.centres, tokens.probabilities, tokens.margins
    return Tokens(
        [ids[at] for at in said],
        [centres[at] for at in said],
        [probabilities[at] for at in said],
        [margins[at] for at in said],
    )


def n_words(tokenizer: Tokenizer, tokens: Tokens) -> int:
    """Words that the tokens spell."""
    return sum(1 for _ in word_spans(tokenizer, spoken(tokens).ids))


def last_word(tokenizer: Tokenizer, tokens: Tokens) -> float | None:
    """The memory position that the last word's beginning was read from; None without words."""
    openers = [at for at, token in enumerate(tokens.ids) if tokenizer.opens_word[token]]
    return tokens.centres[openers[-1]] if openers else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where an utterance's memory lies in its sequence."""

    base_frame: int
    """Frame of the sequence at memory position 0."""
    frames: int
    """Frames in the memory."""
    told: int
    """Memory position before which all words have been told."""


def words_of(tokenizer: Tokenizer, tokens: Tokens, place: Place) -> tuple[Word, ...]:
    """The tokens' words, in seconds of the sequence, without those that were told."""
    tokens = _untold(tokenizer, spoken(tokens), place.told)
    words = timed_words(tokenizer, tokens.ids, tokens.centres, tokens.probabilities, n_frames=place.frames)
    margins = [min(tokens.margins[begin:end]) for begin, end in word_spans(tokenizer, tokens.ids)]
    shift = place.base_frame * FRAME_S
    return tuple(
        replace(w, start_s=w.start_s + shift, end_s=w.end_s + shift, margin=margin)
        for w, margin in zip(words, margins, strict=True)
    )


def _untold(tokenizer: Tokenizer, tokens: Tokens, told: int) -> Tokens:
    """The words behind the last that begins before a memory position."""
    openers = [at for at, token in enumerate(tokens.ids) if tokenizer.opens_word[token]]
    before = [n for n, at in enumerate(openers) if tokens.centres[at] < told]
    if not before:
        return tokens
    n_told = before[-1] + 1
    return tokens[openers[n_told] if n_told < len(openers) else len(tokens.ids) :]


def ended_by(words: tuple[Word, ...], end_s: float) -> tuple[Word, ...]:
    """The words with no time after the utterance's end: a flush reads on zeros behind it."""
    return tuple(replace(w, start_s=min(w.start_s, end_s), end_s=min(w.end_s, end_s)) for w in words)


def host(x: Tensor) -> list[int]:
    """int64 [B] as a list."""
    found: list[int] = x.to(torch.long).tolist()
    return found
