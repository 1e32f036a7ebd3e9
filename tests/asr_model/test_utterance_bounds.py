"""When silence begins and what it ends, on made-up signs of speech and levels: no network runs."""

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live import sound
from asr_model.live.settings import NEVER_FRAMES, TICK_FRAMES, LiveSettings, silence_frames
from asr_model.live.slot_state import declare
from asr_model.live.utterance_bounds import (
    LONGEST_TAIL_FRAMES,
    SILENCE_TAIL_FRAMES,
    Activity,
    Heard,
    observe,
    read_until,
    silence,
    spare_silence,
)

LOUD_DB, QUIET_DB = -25.0, -60.0
SLOT = torch.tensor([0])


class Ear:
    """One slot that hears ticks, told frame by frame: ``S`` speech, ``s`` its sound without the sign, ``.`` silence."""

    def __init__(self, settings: LiveSettings | None = None, *, background_db: float = QUIET_DB) -> None:
        self.settings = settings or LiveSettings()
        self.background_db = background_db
        self.state: State = {
            name: torch.full((1, *tensor.shape), tensor.initial, dtype=tensor.dtype)
            for name, tensor in declare(self.settings).items()
        }
        self.ticks = 0

    def hear(self, frames: str, *, is_new: bool = True) -> Activity:
        """One tick."""
        assert len(frames) == TICK_FRAMES
        speech = torch.tensor([[float(sign == "S") for sign in frames]])
        level = torch.tensor([[self.background_db if sign == "." else LOUD_DB for sign in frames]])
        at = self.state["memory_size"][0] + torch.arange(TICK_FRAMES)
        self.state["memory_level"][0, at], self.state["memory_speech"][0, at] = level[0], speech[0]
        self.state["memory_size"] += TICK_FRAMES
        numbers = self.ticks * TICK_FRAMES + torch.arange(TICK_FRAMES)[None]
        self.ticks += is_new
        return observe(SLOT, Heard(numbers, speech, level, torch.tensor([is_new])), self.settings, self.state)

    def silent(self) -> int:
        return int(silence(SLOT, self.state))


def told(flag: Tensor) -> bool:
    return bool(flag[0])


def test_silence_counts_from_the_last_frame_of_speech_over_ticks() -> None:
    ear = Ear()
    activity = ear.hear("..SS.S....")
    assert (told(activity.is_speech), int(activity.first_frame), int(activity.last_frame)) == (True, 2, 5)
    assert ear.silent() == 4
    activity = ear.hear("..........")
    assert (told(activity.is_speech), ear.silent()) == (False, 14)
    activity = ear.hear(".S........")
    assert (int(activity.first_frame), int(activity.last_frame), ear.silent()) == (21, 21, 8)


def test_a_word_that_sounds_on_is_no_silence_yet() -> None:
    ear = Ear()
    ear.hear(".SSSSSssss")
    assert ear.silent() == 0
    ear.hear("sss.......")
    assert ear.silent() == 7
    assert int(read_until(SLOT, ear.state)) == 13 + SILENCE_TAIL_FRAMES
    ear.hear("..sss.....")  # a click is no part of the word
    assert ear.silent() == 17


def test_sound_that_never_ends_is_silence_in_the_end() -> None:
    ear = Ear()
    ear.hear(".....SSSSS")
    for _ in range(4):
        ear.hear("s" * TICK_FRAMES)
    assert ear.silent() == 4 * TICK_FRAMES - LONGEST_TAIL_FRAMES


def test_noise_as_loud_as_speech_is_no_sound_of_a_word() -> None:
    ear = Ear(background_db=LOUD_DB - 3)
    ear.hear(".SSSSS....")
    assert ear.silent() == 4


def ticks_until_endpoint(ear: Ear) -> int:
    ear.hear("SSSSSSSSSS")
    for n in range(1, 30):
        if told(ear.hear("..........").at_endpoint):
            return n
    return 0


def test_an_endpoint_comes_with_the_silence_that_was_asked_for() -> None:
    asked = {240: 1, 480: 2, 481: 3, 800: 4, 2400: 10}
    assert {ms: ticks_until_endpoint(Ear(LiveSettings(endpoint_silence_ms=ms))) for ms in asked} == asked
    own = Ear()
    own.state["endpoint_frames"][0] = silence_frames(1200)
    assert ticks_until_endpoint(own) == 5
    assert ticks_until_endpoint(Ear(LiveSettings(endpoints=False))) == 0


def test_less_than_a_tick_acts_as_a_tick_and_nothing_as_never() -> None:
    assert silence_frames(10) == silence_frames(240) == TICK_FRAMES
    assert silence_frames(0) == NEVER_FRAMES
    ear = Ear(LiveSettings(max_utterance_s=60.0))
    ear.state["endpoint_frames"][0] = NEVER_FRAMES
    assert ticks_until_endpoint(ear) == 0


def test_silence_opens_nothing_and_ends_nothing() -> None:
    ear = Ear()
    for _ in range(20):
        activity = ear.hear("..........")
        assert not told(activity.is_open | activity.at_endpoint | activity.at_pause)


def test_near_the_maximum_length_a_tick_of_silence_is_a_pause_and_no_endpoint() -> None:
    ear = Ear(LiveSettings(max_utterance_s=9.6))
    pauses = []
    for _ in range(38):
        ear.hear("SSSSSSSSSS")
        activity = ear.hear("..........")
        pauses.append(told(activity.at_pause))
        assert not told(activity.at_endpoint)
        if pauses[-1]:
            break
    assert 0.8 <= int(ear.state["memory_size"][0]) / ear.settings.max_utterance_frames <= 0.95


def test_the_endpoint_after_an_utterance_ended_for_its_length_is_owed_once_and_not_after_speech() -> None:
    for speaks_again in (False, True):
        ear = Ear()
        ear.hear("SSSSSSSSSS")
        ear.hear("..........")
        ear.state["is_open"][0], ear.state["owes_endpoint"][0] = False, True
        if speaks_again:
            ear.hear("..SS......")
            ear.state["is_open"][0] = False
        ends = [told(ear.hear("..........").at_endpoint) for _ in range(6)]
        assert any(ends) != speaks_again


def test_speech_that_a_flush_has_ended_is_not_told_again_but_still_counts_as_speech() -> None:
    ear = Ear()
    ear.state["first_frame"][0] = 6  # where the flush stood
    activity = ear.hear("SSSS......")
    assert told(activity.is_speech & activity.is_open)
    assert not told(activity.is_told_speech)
    assert ear.silent() == 6
    again = Ear()
    again.state["first_frame"][0] = 6
    activity = again.hear("SSSS...SS.")
    assert told(activity.is_told_speech)
    assert (int(activity.first_frame), int(activity.last_frame)) == (7, 8)


def test_the_silence_that_leads_into_the_next_utterance_begins_after_the_sound() -> None:
    ear = Ear()
    ear.hear(".SSSSSSSss")
    ear.hear("..........")
    assert int(spare_silence(SLOT, ear.state)) == 10 - SILENCE_TAIL_FRAMES


def test_levels_are_those_of_the_last_samples_of_a_tick() -> None:
    audio = torch.zeros(2, 4351)
    audio[0, 511 : 511 + 384] = 0.1  # a first tick has all of them
    audio[1, 384:768] = 0.01
    level = sound.levels(audio, torch.tensor([True, False]))
    assert torch.allclose(level[0, :2], torch.tensor([-20.0, sound.SILENCE_DB]))
    assert torch.allclose(level[1, :3], torch.tensor([sound.SILENCE_DB, -40.0, sound.SILENCE_DB]))


def test_the_quietest_place_is_found_within_its_bounds() -> None:
    ear = Ear()
    for _ in range(4):
        ear.hear("SSSSSSSSSS")
    ear.state["memory_level"][0, 10:13] = -50.0  # around the start of frame 13
    ear.state["memory_level"][0, 30:33] = -60.0
    search = sound.Search(span=30, reach=1)
    low, high = torch.tensor([[5, 15, 5]]), torch.tensor([[20, 40, 12]])
    position, level = sound.quietest(SLOT, low, high, search, ear.state)
    assert position[0, :2].tolist() == [13, 33]
    assert level[0, :2].tolist() == [-50.0, -60.0]
    assert position[0, 2] == 12
