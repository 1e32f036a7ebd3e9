"""The text comes from slot state and from nothing else, and no slot touches another (I2, I6, I7, I8)."""

import random

import numpy as np
import torch

from asr_model.contract import Samples, SlotRange
from asr_model.live.model import LiveModel
from asr_model.live.slot_state import ENCODER_STATE
from asr_model.transcript import UtteranceEnd, joined
from tests.asr_model.conftest import Utterance
from tests.support.slot_player import Played, SlotPlayer

SECOND = 16_000


def solo(model: LiveModel, audio: Samples) -> Played:
    """The sequence alone on an instance of one slot."""
    player = SlotPlayer(model, 1)
    played = player.open(0, audio)
    player.play()
    return played


def spoken(played: Played) -> list[tuple[str, str]]:
    """What each step said of the open utterance."""
    return [(joined(output.committed), joined(output.draft)) for output in played.outputs]


def test_swapped_states_swap_the_rest_of_the_texts(live: LiveModel, utterances: list[Utterance]) -> None:
    a, b = utterances[0].audio, utterances[1].audio
    player = SlotPlayer(live, 2)
    player.open(0, a)
    player.open(1, b)
    for _ in range(12):
        player.step([0, 1])
    before = [joined(player.sequences[slot].outputs[-1].committed) for slot in (0, 1)]
    assert all(before), "both have committed words by now"
    for tensor in player.state.values():
        tensor[[0, 1]] = tensor[[1, 0]].clone()
    player.sequences[0], player.sequences[1] = player.sequences[1], player.sequences[0]
    player.play()
    assert player.sequences[1].text == solo(live, a).text
    assert player.sequences[0].text == solo(live, b).text


def test_states_swapped_under_the_sequences_mix_their_texts(live: LiveModel, utterances: list[Utterance]) -> None:
    """Nothing is decoded again from stored audio: what was said before the swap comes out of the other slot."""
    a, b = utterances[0].audio, utterances[1].audio
    player = SlotPlayer(live, 2)
    played = player.open(0, a), player.open(1, b)
    for _ in range(12):
        player.step([0, 1])
    before = [joined(p.outputs[-1].committed) for p in played]
    for tensor in player.state.values():
        tensor[[0, 1]] = tensor[[1, 0]].clone()
    player.step([0, 1])
    assert joined(played[0].outputs[-1].committed).startswith(before[1])
    assert joined(played[1].outputs[-1].committed).startswith(before[0])


def test_a_zeroed_slot_breaks_its_text_and_no_other(live: LiveModel, utterances: list[Utterance]) -> None:
    a, b = utterances[0].audio, utterances[1].audio
    player = SlotPlayer(live, 2)
    broken, whole = player.open(0, a), player.open(1, b)
    for _ in range(12):
        player.step([0, 1])
    for name, tensor in live.spec.state.items():
        player.state[name][0] = tensor.initial
    player.play()
    assert broken.text != solo(live, a).text
    assert whole.text == solo(live, b).text


def test_interleaving_company_and_reused_slots_change_nothing(live: LiveModel, utterances: list[Utterance]) -> None:
    """Random pauses, joins and leaves; sequences that end in mid-word; every slot has several tenants."""
    rng = random.Random(4)
    audios = [u.audio[: rng.randint(30_000, len(u.audio))] for u in utterances for _ in range(2)]
    player, todo, live_slots = SlotPlayer(live, 5), list(range(len(audios))), dict[int, int]()
    found: dict[int, Played] = {}
    for name, tensor in live.spec.state.items():  # what a dead tenant may have left behind
        if tensor.dtype.is_floating_point:
            player.state[name].fill_(float("nan"))
    while todo or live_slots:
        if todo and len(live_slots) < 5 and rng.random() < 0.5:
            slot = rng.choice([s for s in range(5) if s not in live_slots])
            live_slots[slot] = todo.pop(0)
            found[live_slots[slot]] = player.open(slot, audios[live_slots[slot]])
        now = [slot for slot in live_slots if rng.random() < 0.7]
        ticks = [slot for slot in now if player.has_tick(slot)]
        ends = {slot: (len(player.sequences[slot].audio), True) for slot in now if slot not in ticks}
        if now:
            result = player.step(ticks, ends)
            assert not result.errors
        for slot in ends:
            del live_slots[slot]
    for number, played in found.items():
        alone = solo(live, audios[number])
        assert played.text == alone.text
        assert spoken(played) == spoken(alone)


def test_a_step_leaves_other_slots_bit_equal(live: LiveModel, utterances: list[Utterance]) -> None:
    player = SlotPlayer(live, 4)
    for slot in range(3):
        player.open(slot, utterances[slot].audio)
    for _ in range(8):
        player.step([0, 1, 2])
    names = list(live.spec.state)
    idle, free = player.snapshot(1, names), player.snapshot(3, names)
    player.step([0], {2: (player.sequences[2].position + 1000, False)})
    player.step([0, 2], span=SlotRange(first=0, n_slots=4))
    assert all(torch.equal(value, player.state[name][1]) for name, value in idle.items())
    assert all(torch.equal(value, player.state[name][3]) for name, value in free.items())


def test_a_row_that_is_not_finite_fails_alone(live: LiveModel, utterances: list[Utterance]) -> None:
    player = SlotPlayer(live, 2)
    bad = utterances[0].audio.copy()
    bad[20_000:20_010] = np.nan
    player.open(0, bad)
    good = player.open(1, utterances[1].audio)
    errors: dict[int, str] = {}
    while player.has_tick(0) and not errors:
        errors = dict(player.step([0, 1]).errors)
    assert errors == {0: "audio or state is not finite"}
    player.play([1])
    assert good.text == solo(live, utterances[1].audio).text


def test_equal_audio_says_the_same_until_it_differs(live: LiveModel, utterances: list[Utterance]) -> None:
    a = utterances[0].audio
    at = 3 * 16_000
    other = np.concatenate((a[:at], utterances[1].audio))
    first, second = solo(live, a), solo(live, other)
    ticks = (at - live.spec.lookahead_samples) // live.spec.tick_samples
    assert spoken(first)[:ticks] == spoken(second)[:ticks]
    assert spoken(first)[ticks:] != spoken(second)[ticks:]


def test_finalize_anywhere_in_a_word_leaves_the_encoder_bit_equal(live: LiveModel, utterances: list[Utterance]) -> None:
    """A row for each 20 ms of two ticks, and one row without Finalize."""
    tick, undisturbed = live.spec.tick_samples, 24
    places = {slot: 2 * SECOND + slot * 320 for slot in range(undisturbed)}
    player = SlotPlayer(live, undisturbed + 1)
    for slot in range(undisturbed + 1):
        player.open(slot, utterances[0].audio[: 3 * SECOND + 4 * tick])
    while player.has_tick(undisturbed):
        due = {slot: (at, False) for slot, at in places.items() if at < player.tick_end(slot)}
        if due:
            player.step((), due)
            assert all(player.sequences[slot].ended[-1].cause is UtteranceEnd.FINALIZE for slot in due)
            places = {slot: at for slot, at in places.items() if slot not in due}
        for name in ENCODER_STATE:
            for slot in range(undisturbed):
                assert torch.equal(player.state[name][slot], player.state[name][undisturbed]), (name, slot)
        player.step(range(undisturbed + 1))
    assert not places
