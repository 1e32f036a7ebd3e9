"""When an utterance opens, and when and where it ends. Decided from the audio alone, per row, at ticks.

The CTC head tells speech from everything else: on voices it was not trained on, 99 of 100 ticks of speech hold a frame
that is no blank with probability 0.4 or more, and no tick of 20 s of white noise at any level reaches 0.01. But it
tells it in spikes: a word may sound on for 0.3 s after its last one. So silence begins where the sound has died away.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live import sound
from asr_model.live.reader import Hypothesis
from asr_model.live.settings import TICK_FRAMES, UNREAD_FRAMES, LiveSettings

SPOKEN_MARGIN_FRAMES = 25
"""The last token of a sentence is read from at most so many frames before the end of its sound."""
LOUD_DB, STANDS_OUT_DB = 15.0, 6.0
"""Sound within so much of the utterance's mean level, and so much above the background, belongs to the word before."""
LONGEST_TAIL_FRAMES = 20
"""A word sounds on for at most so long (0.48 s) after its last frame of speech."""
SILENCE_TAIL_FRAMES = 10
"""Silence (0.24 s) that stays with the utterance that it ends."""
STALL_SUPPRESS_TICKS, STALL_PASSAGE_TICKS = 4, 8
"""Ticks of a stall after which the end token is suppressed once, and after which it is read on afresh."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What the tick of each row holds and what follows from it. bool [B] unless said otherwise."""

    is_speech: Tensor
    is_told_speech: Tensor
    """Speech behind what a flush has ended."""
    first_frame: Tensor
    """int64 [B]: the first frame of that in the tick, counted from the sequence's start; without it, nothing."""
    last_frame: Tensor
    """int64 [B]: the last one."""
    is_open: Tensor
    """An utterance is open, this tick included."""
    at_endpoint: Tensor
    """The silence that ends an utterance is there: of the open one, or of one that was ended for its length before."""
    at_length: Tensor
    """At the maximum length with committed words: to be cut between words."""
    at_pause: Tensor
    """Near the maximum length in a pause, or at it with nothing committed: to be ended here for its length."""
    is_quiet: Tensor
    """No speech in this tick nor in the one before: nothing to read."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What there is to hear in a tick."""

    frames: Tensor
    """int64 [B, TICK_FRAMES]: the frames' numbers in the sequence."""
    speech: Tensor
    """float32 [B, TICK_FRAMES]: how probably a frame is speech."""
    level: Tensor
    """float32 [B, TICK_FRAMES]: see ``sound``."""
    is_new: Tensor
    """bool [B]: rows that brought a tick; the others (flushes on a tick boundary) keep what they had."""


def observe(slots: Tensor, heard: Heard, settings: LiveSettings, state: State) -> Activity:
    """Move the speech state of int64 [B] slots on by one tick, which their memories hold already."""
    speaks = (heard.speech > settings.speech_probability) & heard.is_new[:, None]
    told = speaks & (heard.frames >= state["first_frame"][slots, None])
    is_speech = speaks.any(1)
    place = torch.arange(TICK_FRAMES, device=slots.device)
    silent = _follow_sound(slots, speaks, heard, settings, state)
    is_open = state["is_open"][slots] | is_speech | (not settings.skip_silence)
    state["is_open"][slots] = is_open
    ends = is_open & heard.is_new & settings.endpoints
    state["owes_endpoint"][slots] &= ~is_speech
    owes = state["owes_endpoint"][slots] & heard.is_new
    at_endpoint = (ends | owes) & (silent >= state["endpoint_frames"][slots])
    at_length = ends & (state["memory_size"][slots] >= settings.max_utterance_frames)
    at_pause = ends & (silent >= _pause(slots, settings, state)) & ~at_endpoint
    has_words = state["token_count"][slots] > 1
    return Activity(
        is_speech=is_speech,
        is_told_speech=told.any(1),
        first_frame=heard.frames[:, 0] + torch.where(told, place, TICK_FRAMES).amin(1),
        last_frame=heard.frames[:, 0] + torch.where(told, place, -1).amax(1),
        is_open=is_open,
        at_endpoint=at_endpoint,
        at_length=at_length & has_words,
        at_pause=at_pause | (at_length & ~has_words & ~at_endpoint),
        is_quiet=(state["silent_frames"][slots] >= 2 * TICK_FRAMES) & settings.skip_silence,
    )


def _follow_sound(slots: Tensor, speaks: Tensor, heard: Heard, settings: LiveSettings, state: State) -> Tensor:
    """Move on the frames since the last speech and those in which it sounds on. Returns the silence, frames [B]."""
    usual = sound.speech_level(slots, settings.speech_probability, state) - LOUD_DB
    least = sound.background_level(slots, state) + STANDS_OUT_DB
    is_loud = heard.level > torch.maximum(usual, least)[:, None]
    silent, tail = state["silent_frames"][slots], state["tail_frames"][slots]
    for i in range(TICK_FRAMES):
        sounds_on = is_loud[:, i] & (tail == silent) & (tail < LONGEST_TAIL_FRAMES)
        silent = torch.where(speaks[:, i], 0, silent + heard.is_new)
        tail = torch.where(speaks[:, i], 0, tail + (sounds_on & heard.is_new))
    state["silent_frames"][slots], state["tail_frames"][slots] = silent, tail
    return silent - tail


def _pause(slots: Tensor, settings: LiveSettings, state: State) -> Tensor:
    """Silent frames that end an utterance for its length: those of an endpoint up to half the maximum length, then
    falling to one tick at nine tenths of it."""
    left = (0.9 - state["memory_size"][slots] / settings.max_utterance_frames) / 0.4
    return TICK_FRAMES + (state["endpoint_frames"][slots] - TICK_FRAMES) * left.clamp(0, 1)


def is_complete(slots: Tensor, h: Hypothesis, is_open: Tensor, settings: LiveSettings, state: State) -> Tensor:
    """bool [B]: the decoder says that the utterance is complete, everything is read and a short silence agrees."""
    if not settings.endpoints:
        return torch.zeros_like(is_open)
    is_read = h.heard >= spoken_until(slots, state) - SPOKEN_MARGIN_FRAMES
    is_silent = silence(slots, state) >= state["sentence_frames"][slots]
    return is_open & h.is_complete & (h.size > 0) & is_read & is_silent


def spoken_until(slots: Tensor, state: State) -> Tensor:
    """Memory position int64 [B] of the end of the last speech."""
    return state["memory_size"][slots] - state["silent_frames"][slots]


def silence(slots: Tensor, state: State) -> Tensor:
    """Frames int64 [B] since the last word's sound died away."""
    return state["silent_frames"][slots] - state["tail_frames"][slots]


def spare_silence(slots: Tensor, state: State) -> Tensor:
    """Frames int64 [B] at the end that no word of the utterance sounds in."""
    return torch.minimum((silence(slots, state) - SILENCE_TAIL_FRAMES).clamp(min=0), state["memory_size"][slots])


def read_until(slots: Tensor, state: State) -> Tensor:
    """Frame int64 [B] of the sequence up to which the utterance is to be read if it ends in the present silence."""
    end = state["memory_base"][slots] + state["memory_size"][slots]
    return end - silence(slots, state) + SILENCE_TAIL_FRAMES


def count_stalls(slots: Tensor, h: Hypothesis, is_speech: Tensor, state: State) -> None:
    """A decoder that has nothing to say although speech goes on far beyond what it has read is stalled.

    Ticks without speech neither count nor end a stall.
    """
    ahead = spoken_until(slots, state) - h.heard
    count = state["stalled_ticks"][slots]
    is_stalled = h.gave_up & (ahead > UNREAD_FRAMES)
    state["stalled_ticks"][slots] = torch.where(is_stalled, count + is_speech.long(), 0)
