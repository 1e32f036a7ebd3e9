"""Ending an utterance, wherever and however, disturbs nothing after it (I8).

A Finalize is answered from what was heard before it, so that the word that it cuts may be said wrong or left to what
follows. Nothing else may differ: the state of encoder and reading is the same, bit for bit, and so is every word after.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch

from asr_model.contract import Samples
from asr_model.live.model import LiveModel
from asr_model.live.slot_state import ENCODER_STATE, READING_STATE
from asr_model.transcript import EndedUtterance, UtteranceEnd, Word, joined
from clients.word_error_rate import words
from tests.asr_model.conftest import Utterance
from tests.support.slot_player import Played, SlotPlayer

SECOND = 16_000


def paused(parts: list[Samples], pause_s: float) -> Samples:
    """The parts, each with a pause behind it."""
    pause = np.zeros(round(pause_s * SECOND), np.float32)
    return np.concatenate([piece for part in parts for piece in (part, pause)])


def play_with_finalize(model: LiveModel, audio: Samples, places: list[int]) -> list[Played]:
    """The audio once per place, with Finalize there, and once without, which comes last. All side by side."""
    n = len(places)
    player = SlotPlayer(model, n + 1)
    played = [player.open(slot, audio) for slot in range(n + 1)]
    waiting = dict(enumerate(places))
    while player.has_tick(n):
        due = {slot: (at, False) for slot, at in waiting.items() if at < player.tick_end(slot)}
        if due:
            player.step((), due)
            waiting = {slot: at for slot, at in waiting.items() if slot not in due}
        for name in (*ENCODER_STATE, *READING_STATE):
            assert all(torch.equal(player.state[name][slot], player.state[name][n]) for slot in range(n)), name
        player.step(range(n + 1))
    player.play()
    assert not waiting
    return played


def said(ended: list[EndedUtterance]) -> list[Word]:
    return [word for utterance in ended for word in utterance.words]


def texts(words_said: list[Word]) -> list[str]:
    return words(joined(tuple(words_said)))


def words_from(played: Played, at_s: float) -> list[Word]:
    """Words that begin at that time or later."""
    return [word for word in said(played.ended) if word.start_s >= at_s]


def check_finalize(whole: Played, played: Played, place: int) -> None:
    """What one reading with Finalize says, against the undisturbed one."""
    at = next(i for i, e in enumerate(played.ended) if e.cause is UtteranceEnd.FINALIZE)
    assert played.ended[at].end_sample == place
    before, after = said(played.ended[: at + 1]), said(played.ended[at + 1 :])
    undisturbed = said(whole.ended)
    rest = undisturbed[len(undisturbed) - len(after) :]
    assert texts(after) == texts(rest), f"Finalize at {place}"
    assert [word.start_s for word in after] == pytest.approx([word.start_s for word in rest], abs=0.05)
    assert abs(len(before) + len(after) - len(undisturbed)) <= 1, f"Finalize at {place}: {before}, then {after}"
    assert all(word.start_s > place / SECOND - 1.0 for word in after)
    ends = [(e.cause, e.end_sample) for e in played.ended[at + 1 :] if e.words]
    assert ends == [(e.cause, e.end_sample) for e in whole.ended if e.words][-len(ends) :]


def test_finalize_at_places_all_over_a_tick_disturbs_nothing_after_it(
    live: LiveModel, utterances: list[Utterance]
) -> None:
    """Each place in another word and in another part of its tick; one on a tick boundary."""
    audio = paused([utterances[0].audio[: 4 * SECOND], utterances[1].audio[: 3 * SECOND]], 1.25)
    tick, lookahead = live.spec.tick_samples, live.spec.lookahead_samples
    places = [lookahead + (3 + 4 * n) * tick + n * tick // 4 for n in range(4)]
    *disturbed, whole = play_with_finalize(live, audio, places)
    for place, played in zip(places, disturbed, strict=True):
        check_finalize(whole, played, place)


@pytest.mark.slow
def test_finalize_at_every_tick_and_within_every_tick_disturbs_nothing_after_it(
    live: LiveModel, utterances: list[Utterance]
) -> None:
    audio = paused([u.audio for u in utterances[:2]], 1.25)
    tick, lookahead = live.spec.tick_samples, live.spec.lookahead_samples
    n_ticks = (len(audio) - lookahead) // tick
    places = [lookahead + n * tick + part for n in range(n_ticks) for part in (0, 1, tick // 3, 2 * tick // 3)]
    for begin in range(0, len(places), 40):
        *disturbed, whole = play_with_finalize(live, audio, places[begin : begin + 40])
        for place, played in zip(places[begin:], disturbed, strict=False):
            check_finalize(whole, played, place)


def test_finalize_twice_in_a_tick_says_nothing_twice(live: LiveModel, utterances: list[Utterance]) -> None:
    audio = utterances[0].audio[: 5 * SECOND]
    player = SlotPlayer(live, 2)
    whole, played = player.open(0, audio), player.open(1, audio)
    for _ in range(10):
        player.step([0, 1])
    for part in (700, 700, 2000):
        player.step((), {1: (played.position + part, False)})
    player.play()
    assert len([e for e in played.ended if e.cause is UtteranceEnd.FINALIZE]) == 3
    assert abs(len(said(played.ended)) - len(said(whole.ended))) <= 1
    after = said(played.ended[3:])
    assert texts(after) == texts(said(whole.ended)[-len(after) :])


def spans(ended: list[EndedUtterance]) -> list[tuple[int, int]]:
    return [(e.first_sample, e.end_sample) for e in ended if e.words]


def test_any_endpoint_silence_leaves_encoder_and_words_as_they_are(
    live: LiveModel, utterances: list[Utterance]
) -> None:
    """Three passages, a pause of 0.7 s and one of 2.5 s: what is said after the long one is the same for all."""
    a, b, c = (utterance.audio[: 3 * SECOND] for utterance in utterances[:3])
    audio = np.concatenate((paused([a], 0.7), paused([b], 2.5), c))
    silences = [240, 1000, 2000, None]
    player = SlotPlayer(live, len(silences))
    played = [player.open(slot, audio, silence_ms) for slot, silence_ms in enumerate(silences)]
    player.play()
    for name in ENCODER_STATE:
        assert all(torch.equal(value, player.state[name][0]) for value in player.state[name]), name
    long_pause_s = (len(a) + len(b)) / SECOND + 1.5
    rests = [words_from(each, long_pause_s) for each in played]
    assert len(rests[0]) >= 5
    assert all(texts(rest) == texts(rests[0]) for rest in rests)
    assert len(spans(played[0].ended)) >= len(spans(played[2].ended)) == 2
    for each in played:
        assert all(end <= first for (_, end), (first, _) in pairwise(spans(each.ended)))
        assert {e.cause for e in each.ended if e.words} <= {UtteranceEnd.ENDPOINT, UtteranceEnd.END}


def test_without_endpoints_silence_ends_nothing(live: LiveModel, utterances: list[Utterance]) -> None:
    audio = paused([utterance.audio[: 3 * SECOND] for utterance in utterances[:2]], 2.4)
    player = SlotPlayer(live, 1)
    played = player.open(0, audio, 0)
    player.play()
    assert [e.cause for e in played.ended] == [UtteranceEnd.END]
    assert len(texts(list(played.ended[0].words))) >= 8


def test_what_an_utterance_will_be_read_from_is_known_in_the_pause_before_its_end(
    live: LiveModel, utterances: list[Utterance]
) -> None:
    audio = paused([utterance.audio[: 4 * SECOND] for utterance in utterances[:2]], 1.5)
    player = SlotPlayer(live, 1)
    played = player.open(0, audio)
    player.play()
    ends = [i for i, output in enumerate(played.outputs) if output.ended is not None and output.ended.words]
    assert len(ends) == 2
    for i in ends:
        ended = played.outputs[i].ended
        assert ended is not None
        assert ended.cause is UtteranceEnd.ENDPOINT
        assert played.outputs[i - 1].likely == ended.audio
        assert played.outputs[i].likely is None
        assert ended.audio.end_sample <= ended.end_sample
        last_s = ended.words[-1].end_s
        assert last_s - 0.1 <= ended.audio.end_sample / SECOND <= last_s + 0.6
