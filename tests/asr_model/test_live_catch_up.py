"""Ticks of a late sequence in one row say what they say one by one, whoever is there (I6, I7), over a range of slots or
gathered."""

import random
from dataclasses import replace

import numpy as np
import pytest

from asr_model.contract import Samples, SlotRange
from asr_model.live.model import LiveModel
from asr_model.transcript import LiveOutput, UtteranceEnd, Word, joined
from tests.asr_model.conftest import Utterance, samples_of
from tests.support.fixtures import fixtures
from tests.support.slot_player import Played, SlotPlayer

SECOND = 16_000
N_SLOTS = 7
SAME_S = 0.012
"""Times of words are the same to half a frame."""


class Schedule:
    """A sequence's audio and where its client says Finalize."""

    def __init__(self, audio: Samples, finalizes: list[int]) -> None:
        self.audio, self.finalizes = audio, sorted(finalizes)

    def next_stop(self) -> int:
        """Up to where ticks may go before the next flush."""
        return self.finalizes[0] if self.finalizes else len(self.audio)


def one_by_one(model: LiveModel, schedule: Schedule) -> Played:
    """The sequence alone, tick by tick."""
    player, left = SlotPlayer(model, 1), Schedule(schedule.audio, schedule.finalizes)
    played = player.open(0, left.audio)
    while not played.closed:
        if player.tick_end(0) <= left.next_stop():
            player.step([0])
        else:
            _flush(player, 0, left)
    return played


def _flush(player: SlotPlayer, slot: int, left: Schedule) -> None:
    at, is_end = left.next_stop(), not left.finalizes
    del left.finalizes[:1]
    player.step((), {slot: (at, is_end)})


def spoil(player: SlotPlayer) -> None:
    """What dead tenants may have left in the slots, which a step over a range of slots runs over."""
    for tensor in player.state.values():
        if tensor.dtype.is_floating_point:
            tensor.fill_(float("nan"))


def catching_up(model: LiveModel, schedules: list[Schedule], seed: int) -> list[Played]:
    """All of them in random slots; rows pause at random and then have up to as many ticks as the model takes."""
    rng, player = random.Random(seed), SlotPlayer(model, N_SLOTS)
    spoil(player)
    slots = rng.sample(range(N_SLOTS), len(schedules))
    left = {slot: Schedule(s.audio, s.finalizes) for slot, s in zip(slots, schedules, strict=True)}
    played = {slot: player.open(slot, left[slot].audio) for slot in slots}
    seen = set[int]()
    while live := [slot for slot in slots if not played[slot].closed]:
        now = rng.sample(live, rng.randint(1, len(live)))
        ticks, flushes = dict[int, int](), dict[int, tuple[int, bool]]()
        for slot in now:
            stop = left[slot].next_stop()
            fits = [n for n in range(1, model.spec.max_ticks + 1) if player.tick_end(slot, n) <= stop]
            if fits:
                ticks[slot] = rng.choice(fits)
            else:
                flushes[slot] = (stop, not left[slot].finalizes)
                del left[slot].finalizes[:1]
        seen |= set(ticks.values())
        span = SlotRange(first=min(now), n_slots=max(now) + 1 - min(now)) if rng.random() < 0.5 else None
        assert not player.step(ticks, flushes, span).errors
    assert seen == set(range(1, model.spec.max_ticks + 1))
    return [played[slot] for slot in slots]


def timeless(output: LiveOutput) -> LiveOutput:
    """Without times and evidence of words, which rounding moves."""

    def bare(words: tuple[Word, ...]) -> tuple[Word, ...]:
        return tuple(Word(text=word.text, start_s=0, end_s=0, confidence=0) for word in words)

    ended = replace(output.ended, words=bare(output.ended.words)) if output.ended else None
    return replace(output, committed=bare(output.committed), draft=bare(output.draft), ended=ended)


def check(model: LiveModel, schedules: list[Schedule], seed: int) -> set[UtteranceEnd]:
    """Every tick and flush says the same, with the same times. Returns why utterances ended."""
    causes = set[UtteranceEnd]()
    for schedule, found in zip(schedules, catching_up(model, schedules, seed), strict=True):
        wanted = one_by_one(model, schedule)
        assert [timeless(output) for output in found.outputs] == [timeless(output) for output in wanted.outputs]
        pairs = [
            pair for a, b in zip(found.ended, wanted.ended, strict=True) for pair in zip(a.words, b.words, strict=True)
        ]
        assert pairs
        causes |= {ended.cause for ended in wanted.ended}
        assert all(a.start_s == pytest.approx(b.start_s, abs=SAME_S) for a, b in pairs)
        assert all(a.end_s == pytest.approx(b.end_s, abs=SAME_S) for a, b in pairs)
    return causes


def with_pauses(parts: list[Samples]) -> Samples:
    """One after the other, a pause after each that ends an utterance."""
    return np.concatenate([x for part in parts for x in (part, np.zeros(20_000, np.float32))])


def anywhere(rng: random.Random, audio: Samples, n: int) -> list[int]:
    """Places for Finalize."""
    return [rng.randrange(SECOND // 2, len(audio)) for _ in range(n)]


def test_catching_up_says_what_tick_by_tick_says(live: LiveModel, utterances: list[Utterance]) -> None:
    """Phrases with endpoints between them, and a sequence whose client says Finalize in mid-speech."""
    rng = random.Random(6)
    phrases = [samples_of(clip) for clip in fixtures("phrase")[:4]]
    speech = utterances[2].audio[: 5 * SECOND]
    schedules = [
        Schedule(with_pauses(phrases[:2]), []),
        Schedule(with_pauses(phrases[2:]), anywhere(rng, phrases[2], 1)),
        Schedule(speech, anywhere(rng, speech, 2)),
    ]
    causes = check(live, schedules, seed=8)
    assert {UtteranceEnd.ENDPOINT, UtteranceEnd.FINALIZE, UtteranceEnd.END} <= causes


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_long_speech_catches_up_alike(live: LiveModel, utterances: list[Utterance], seed: int) -> None:
    """All fixtures whole; the longest run past the maximum length of an utterance without a pause."""
    rng = random.Random(seed)
    audios = [u.audio for u in utterances]
    rng.shuffle(audios)
    long = np.concatenate(audios[:3])
    schedules = [
        Schedule(long, []),
        Schedule(with_pauses(audios[3:5]), []),
        Schedule(audios[5], anywhere(rng, audios[5], 4)),
        Schedule(audios[0], anywhere(rng, audios[0], 1)),
    ]
    assert UtteranceEnd.LENGTH in check(live, schedules, seed)


def test_a_row_of_several_ticks_that_is_not_finite_fails_alone(live: LiveModel, utterances: list[Utterance]) -> None:
    player = SlotPlayer(live, 2)
    bad = utterances[0].audio.copy()
    bad[9_000] = np.nan  # in the third of the first four ticks
    player.open(0, bad)
    player.open(1, utterances[1].audio)
    result = player.step({0: 4, 1: 2})
    assert dict(result.errors) == {0: "audio or state is not finite"}
    assert [len(result.earlier[i]) for i in (0, 1)] == [3, 1]


def test_ticks_of_a_row_are_counted_one_by_one(live: LiveModel, utterances: list[Utterance]) -> None:
    player, apart = SlotPlayer(live, 2), SlotPlayer(live, 2)
    for p in (player, apart):
        p.open(0, utterances[0].audio)
        p.open(1, utterances[1].audio)
    player.step({0: 4, 1: 3})
    for ticks in ([0, 1], [0, 1], [0, 1], [0]):
        apart.step(ticks)
    names = ("ticks", "encoder_frames", "cross_frames", "decoder_positions")
    assert {name: player.counters[name] for name in names} == {name: apart.counters[name] for name in names}
    assert joined(player.sequences[0].outputs[-1].draft) == joined(apart.sequences[0].outputs[-1].draft)
    assert [o.encoded_samples for o in player.sequences[0].outputs] == [4351, 8191, 12031, 15871]
