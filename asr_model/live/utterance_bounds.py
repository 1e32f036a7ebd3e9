"""When an utterance opens, and when and where it ends. Decided from the audio alone, per row, at ticks.

The CTC head tells speech from everything else: on voices it was not trained on, 99 of 100 ticks of speech hold a frame
that is no blank with probability 0.4 or more, and no tick of 20 s of white noise at any level reaches 0.01.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live.reader import Hypothesis
from asr_model.live.settings import TICK_FRAMES, UNREAD_FRAMES, LiveSettings

SPOKEN_MARGIN_FRAMES = 25
"""The last token of a sentence is read from at most so many frames before the end of its sound."""
SILENCE_TAIL_FRAMES = 4
"""Silence that stays with the utterance that it ends."""
WORD_TAIL_FRAMES = 8
"""Frames after the one a word's last token was read from that may still belong to it."""
STALL_SUPPRESS_TICKS, STALL_CUT_TICKS = 4, 8
"""Ticks of a stall after which the end token is suppressed once, and after which the utterance is cut."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What the tick of each row holds and what follows from it. All bool [B]."""

    is_speech: Tensor
    is_open: Tensor
    """An utterance is open, this tick included."""
    at_endpoint: Tensor
    at_length: Tensor
    """At the maximum length with committed words: to be cut after the last of them."""
    at_length_unread: Tensor
    """At the maximum length with nothing committed: to be ended here."""
    is_quiet: Tensor
    """No speech in this tick nor in the one before: nothing to read."""


def observe(slots: Tensor, speech: Tensor, is_new: Tensor, settings: LiveSettings, state: State) -> Activity:
    """Move the slots' speech state on by one tick.

    Args:
        slots: int64 [B].
        speech: float32 [B, TICK_FRAMES]: probability that a frame is speech.
        is_new: bool [B]: rows that brought a tick; the others (flushes on a tick boundary) keep what they had.
        settings: thresholds.
        state: of the slots.
    """
    heard = (speech > settings.speech_probability) & is_new[:, None]
    is_speech = heard.any(1)
    place = torch.arange(TICK_FRAMES, device=slots.device)
    last = torch.where(heard, place, -1).amax(1)
    silent = state["silent_frames"][slots]
    silent = torch.where(is_speech, TICK_FRAMES - 1 - last, silent + TICK_FRAMES * is_new)
    is_open = state["is_open"][slots] | is_speech | (not settings.skip_silence)
    state["silent_frames"][slots], state["is_open"][slots] = silent, is_open
    ends = is_open & is_new & settings.endpoints
    at_length = ends & (state["memory_size"][slots] + TICK_FRAMES >= settings.max_utterance_frames)
    has_words = state["token_count"][slots] > 1
    return Activity(
        is_speech=is_speech,
        is_open=is_open,
        at_endpoint=ends & (silent >= _endpoint_silence(state["memory_size"][slots], settings)),
        at_length=at_length & has_words,
        at_length_unread=at_length & ~has_words,
        is_quiet=(silent >= 2 * TICK_FRAMES) & settings.skip_silence,
    )


def _endpoint_silence(size: Tensor, settings: LiveSettings) -> Tensor:
    """Silent frames that end an utterance of int64 [B] frames: full up to half the maximum length, then falling to one
    tick at nine tenths of it."""
    left = (0.9 - size / settings.max_utterance_frames) / 0.4
    return TICK_FRAMES + (settings.endpoint_frames - TICK_FRAMES) * left.clamp(0, 1)


def is_complete(slots: Tensor, h: Hypothesis, is_open: Tensor, settings: LiveSettings, state: State) -> Tensor:
    """bool [B]: the decoder says that the utterance is complete, everything is read and a short silence agrees."""
    if not settings.endpoints:
        return torch.zeros_like(is_open)
    is_read = h.heard >= spoken_until(slots, state) - SPOKEN_MARGIN_FRAMES
    return (
        is_open & h.is_complete & (h.size > 0) & is_read & (state["silent_frames"][slots] >= settings.sentence_frames)
    )


def spoken_until(slots: Tensor, state: State) -> Tensor:
    """Memory position int64 [B] of the end of the last speech."""
    return state["memory_size"][slots] - state["silent_frames"][slots]


def spare_silence(slots: Tensor, settings: LiveSettings, state: State) -> Tensor:
    """Frames int64 [B] of the silence at the utterance's end that may lead into the next one."""
    spare = state["silent_frames"][slots] - SILENCE_TAIL_FRAMES
    return torch.minimum(spare.clamp(0, settings.lead_in_frames), state["memory_size"][slots])


def count_stalls(slots: Tensor, h: Hypothesis, is_speech: Tensor, state: State) -> None:
    """A decoder that has nothing to say although speech goes on far beyond what it has read is stalled.

    Ticks without speech neither count nor end a stall.
    """
    ahead = spoken_until(slots, state) - h.heard
    count = state["stalled_ticks"][slots]
    is_stalled = h.gave_up & (ahead > UNREAD_FRAMES)
    state["stalled_ticks"][slots] = torch.where(is_stalled, count + is_speech.long(), 0)


def cut_position(slots: Tensor, state: State) -> Tensor:
    """Memory position int64 [B] between the last committed word and what follows it."""
    last = state["token_frames"][slots, state["token_count"][slots] - 1]
    following = torch.where(
        state["draft_size"][slots] > 0, state["draft_frames"][slots, 0], state["memory_size"][slots]
    )
    following = torch.minimum(following, last + 2 * WORD_TAIL_FRAMES)
    return torch.maximum((last + following + 1) // 2, last + 1).clamp(min=1)
