"""Where an utterance may be cut in the midst of speech, or read on afresh: in the quietest gap between two words.

The decoder's alignment heads tell where words begin, to some 20 ms; the level tells where around it the cut is best,
and how good. The longer the utterance, the shallower a gap will do.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live import sound, utterance_memory
from asr_model.live.settings import UNREAD_FRAMES, LiveSettings
from asr_model.moonshine.word_times import FRAME_S, READ_AFTER_START_S

READ_LATE_FRAMES = READ_AFTER_START_S / FRAME_S
EARLIER_FRAMES, LATER_FRAMES = 6, 4
"""How far before and after the beginning of a word the gap before it is looked for."""
BEFORE_WORD = sound.Search(EARLIER_FRAMES + LATER_FRAMES + 1, 3)
"""A gap is told from a stop within a word by its length: 0.17 s."""
SHORTEST_FRAMES, SPAN_FRAMES = 3, 24
"""A word's last piece ends at least so many frames after the one it was read from, and within so many at the latest."""
AFTER_WORD = sound.Search(SPAN_FRAMES, 2)
PAUSE_FRAMES, PAUSE_DB = 16, 25.0
"""A pause after the last word is looked for within so many frames; it is this far below the mean level of speech for
0.12 s, which the stops within words are too short for."""
LEAST_FRAMES = 42
"""A passage whose last word is read again was at least a second long, or reading would not get on."""
CONTEXT_FRAMES = 60
"""How far (1.44 s) before a cut words are read again."""
FIRST_SHARE, LAST_SHARE = 0.5, 0.95
"""Parts of the maximum length from which a gap is looked for, and at which any will do …"""
DEEPEST_DB, SHALLOWEST_DB = 30.0, 5.0
"""… and how far below the mean level of speech a gap must lie at them; in between in proportion."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """The best gap of each row."""

    position: Tensor
    """int64 [B]: memory position of the cut."""
    token: Tensor
    """int64 [B]: place among the committed tokens of the first one behind the cut; their count if none is."""
    is_wanted: Tensor
    """bool [B]: whether the utterance should be cut there now."""
    told: Tensor
    """int64 [B]: memory position between the words on either side of the cut, where they are read from."""
    context_token: Tensor
    """int64 [B]: the first token of some words before the cut, which are read again as context: a decoder that starts
    in the midst of speech often gets its first words wrong. Place as ``token``."""
    context: Tensor
    """int64 [B]: memory position at which those words begin."""

    def pick(self, rows: Tensor) -> "Gaps":
        """The gaps of bool [B] rows."""
        return Gaps(*(getattr(self, field.name)[rows] for field in fields(self)))


def best_gaps(slots: Tensor, opens_word: Tensor, n_before: Tensor, settings: LiveSettings, state: State) -> Gaps:
    """Of the gaps behind words that were committed in this step, and of the one before the draft, the deepest.

    Words committed earlier were shown as such, so that no cut may take them back.

    Args:
        slots: int64 [B], with committed words.
        opens_word: bool [V]: tokens that begin a word.
        n_before: int64 [B]: tokens, START included, that were committed before this step.
        settings: of the model.
        state: of the slots.
    """
    count, row = state["token_count"][slots], torch.arange(len(slots), device=slots.device)
    tokens = state["tokens"][slots].index_put((row, count), state["draft"][slots, 0])
    centres = state["token_centres"][slots].index_put((row, count), state["draft_centres"][slots, 0])
    place = torch.arange(tokens.shape[1], device=slots.device)
    has_draft = state["draft_size"][slots] > 0
    begins = opens_word[tokens] & (place > 1) & (place >= n_before[:, None]) & (place < count[:, None])
    begins |= (place == count[:, None]) & has_draft[:, None]
    before = centres.masked_fill(place > count[:, None], 0.0).cummax(1).values.roll(1, 1)
    begins &= centres >= before  # where attention turns back, a place in the audio is none in the text
    start = (centres - READ_LATE_FRAMES).round().long()
    low = torch.maximum(start - EARLIER_FRAMES, before.ceil().long() + 1).clamp(min=1)
    position, level = sound.quietest(slots, low, torch.maximum(start + LATER_FRAMES, low), BEFORE_WORD, state)
    least, chosen = level.masked_fill(~begins, torch.inf).min(1)
    depth = sound.speech_level(slots, settings.speech_probability, state) - least
    without = ~begins.any(1)
    last = centres[row, count - 1]
    low = torch.minimum(last.long() + SHORTEST_FRAMES, state["memory_size"][slots])[:, None]
    end, _ = sound.quietest(slots, low, low + SPAN_FRAMES, AFTER_WORD, state)
    at, token = torch.where(without, end[:, 0], position[row, chosen]), torch.where(without, count, chosen)
    is_context = opens_word[tokens] & (place > state["passage_token"][slots, None]) & (place < token[:, None])
    is_context &= centres >= (at - CONTEXT_FRAMES)[:, None]
    first = torch.where(is_context, place, token[:, None]).amin(1)
    return Gaps(
        position=at,
        token=token,
        is_wanted=~without & (depth >= _wanted_depth(slots, settings, state)),
        told=torch.where(without, at, ((centres[row, token - 1] + centres[row, token]) / 2).ceil().long()),
        context_token=first,
        context=torch.where(first < token, start[row, first] - EARLIER_FRAMES, at).clamp(min=0),
    )


def _wanted_depth(slots: Tensor, settings: LiveSettings, state: State) -> Tensor:
    share = state["memory_size"][slots] / settings.max_utterance_frames
    way = ((share - FIRST_SHARE) / (LAST_SHARE - FIRST_SHARE)).clamp(max=1)
    depth = DEEPEST_DB + (SHALLOWEST_DB - DEEPEST_DB) * way
    return depth.masked_fill(way < 0, torch.inf)


def read_on(slots: Tensor, heard: Tensor, opens_word: Tensor, settings: LiveSettings, state: State) -> None:
    """Begin new passages where the decoder is stuck: in the pause after the last word, or before that word if there is
    no pause, for where a word begins is known better than where it ends. Where a passage gave nothing, further on.

    Args:
        slots: int64 [B].
        heard: int64 [B]: the furthest memory position that a token was read from.
        opens_word: bool [V]: tokens that begin a word.
        settings: of the model.
        state: of the slots.
    """
    draft, size = state["draft"][slots], state["draft_size"][slots]
    begun = state["passage_frame"][slots] - state["memory_base"][slots]
    low = torch.minimum(heard + SHORTEST_FRAMES, state["memory_size"][slots])[:, None]
    after, level = (x[:, 0] for x in sound.quietest(slots, low, heard[:, None] + PAUSE_FRAMES, AFTER_WORD, state))
    is_pause = sound.speech_level(slots, settings.speech_probability, state) - level >= PAUSE_DB
    place = torch.arange(draft.shape[1], device=slots.device)
    last = torch.where(opens_word[draft] & (place < size[:, None]), place, -1).amax(1)
    centre = state["draft_centres"][slots].gather(1, last.clamp(min=0)[:, None])
    start = (centre - READ_LATE_FRAMES).round().long()
    before = sound.quietest(slots, (start - EARLIER_FRAMES).clamp(min=1), start + LATER_FRAMES, BEFORE_WORD, state)[0]
    goes_back = ~is_pause & (last >= 0) & (start[:, 0] - begun >= LEAST_FRAMES)
    position = torch.where(goes_back, before[:, 0], torch.where(is_pause, after, heard + 1))
    has_read = state["token_count"][slots] + size - state["passage_token"][slots] > 1
    position = torch.where(has_read, position, begun + UNREAD_FRAMES // 2)
    state["draft_size"][slots] = torch.where(goes_back, last, size)
    utterance_memory.begin_passage(slots, position - 1, state)
