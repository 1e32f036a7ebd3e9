"""The light model: streaming equals offline, slots keep to themselves, words tell which audio they were made of."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from asr_model.contract import Samples, Scheduler, SlotRange, StepRow
from asr_model.light.features import LogMel
from asr_model.light.model import FIRST_TICK_SAMPLES, TICK_SAMPLES, LightModel, build
from asr_model.light.network import HIDDEN, INPUT, LAYERS, RandomLstm, reference
from asr_model.light.utterance import MAX_WORDS, Utterance, syllable
from asr_model.registry import build_model
from asr_model.transcript import LiveOutput, UtteranceEnd, joined
from clients.transcribe.audio_file import read_audio
from tests.support.fixtures import fixtures
from tests.support.slot_player import Played, SlotPlayer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def light() -> LightModel:
    return build({}, CPU)


@pytest.fixture(scope="module")
def voices() -> list[Samples]:
    """Four readers, some 5 s each, with silence behind them."""
    return [np.pad(read_audio(each.path)[:80_000], (0, 16_000)) for each in fixtures("utterance")[:4]]


def solo(model: LightModel, audio: Samples) -> Played:
    player = SlotPlayer(model, 1)
    played = player.open(0, audio)
    player.play()
    return played


def test_it_is_in_the_registry() -> None:
    spec = build_model("light-lstm", {}, CPU).spec
    assert (spec.name, spec.scheduler, spec.tick_samples) == ("light-lstm", Scheduler.SEQUENCE, 2_560)


def test_it_has_no_options_to_speak_of() -> None:
    with pytest.raises(ValueError, match="no option depth, width"):
        build({"width": 1, "depth": 2}, CPU)
    with pytest.raises(ValueError, match="light-lstm takes optimize none, not 'bf16'"):
        build({"optimize": "bf16"}, CPU)


def test_the_network_is_the_lstm_that_torch_has() -> None:
    lstm, output = reference()
    x, h, c = torch.randn(4, 3, INPUT), torch.randn(LAYERS, 3, HIDDEN), torch.randn(LAYERS, 3, HIDDEN)
    with torch.no_grad():
        y, (h_then, c_then) = lstm(x, (h, c))
        found = RandomLstm(CPU)(x, h, c)
    for got, expected in zip(found, (output(y), h_then, c_then), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_copies_that_are_built_at_the_same_time_are_the_same() -> None:
    def weights(_: int) -> list[torch.Tensor]:
        return [each.detach() for network in reference() for each in network.parameters()]

    alone = weights(0)
    with ThreadPoolExecutor(4) as threads:
        others = list(threads.map(weights, range(4)))
    assert all(torch.equal(one, each) for other in others for one, each in zip(alone, other, strict=True))


def test_streaming_equals_offline(light: LightModel, voices: list[Samples]) -> None:
    """The state after the last tick is that of one pass over the whole audio."""
    audio = voices[0]
    player = SlotPlayer(light, 1)
    player.open(0, audio)
    ticks = 0
    while player.has_tick(0):
        player.step([0])
        ticks += 1
    frames = LogMel(CPU)(torch.from_numpy(audio)[None])[0, : 16 * ticks]
    lstm, _ = reference()
    with torch.no_grad():
        _, (h, c) = lstm(frames.view(4 * ticks, 1, INPUT))
    torch.testing.assert_close(player.state["hidden"][0], h[:, 0], rtol=0, atol=1e-4)
    torch.testing.assert_close(player.state["cells"][0], c[:, 0], rtol=0, atol=1e-3)


def test_different_audio_says_different_words(light: LightModel, voices: list[Samples]) -> None:
    texts = [solo(light, audio).text for audio in voices]
    assert all(len(text.split()) >= 8 for text in texts)
    assert all(len(set(text.split())) >= 6 for text in texts), "hardly a word comes twice"
    assert len(set(texts)) == len(voices)


def test_company_order_and_reused_slots_change_nothing(light: LightModel, voices: list[Samples]) -> None:
    rng = random.Random(5)
    audios = [voice[: rng.randint(20_000, 96_000)] for voice in voices for _ in range(3)]
    player, waiting, done = SlotPlayer(light, 5), list(range(len(audios))), dict[int, Played]()
    seated: dict[int, int] = {}
    while waiting or seated:
        for slot in range(5):
            if slot not in seated and waiting and rng.random() < 0.5:
                seated[slot] = waiting.pop(0)
                done[seated[slot]] = player.open(slot, audios[seated[slot]])
        chosen = rng.sample(sorted(seated), k=rng.randint(0, len(seated)))
        ticks = [slot for slot in chosen if player.has_tick(slot)]
        ends = {slot: (len(player.sequences[slot].audio), True) for slot in chosen if slot not in ticks}
        if chosen:
            player.step(ticks, ends)
        for slot in ends:
            del seated[slot]
    for index, audio in enumerate(audios):
        alone = solo(light, audio)
        assert [joined(each.words) for each in done[index].ended] == [joined(each.words) for each in alone.ended]


@pytest.mark.parametrize("direct", [False, True])
def test_catching_up_says_what_tick_by_tick_says(light: LightModel, voices: list[Samples], direct: bool) -> None:
    """Rows of any number of ticks, a Finalize in one of them, over a range of slots or gathered."""
    rng, player, seen = random.Random(9), SlotPlayer(light, 6), set[int]()
    played = {slot: player.open(slot, audio) for slot, audio in zip((0, 1, 3, 5), voices, strict=True)}
    finalize_at = {1: 31_000}
    for name in ("hidden", "cells", "remainder"):  # what dead tenants may have left in the slots
        player.state[name].fill_(float("nan"))
    while live := [slot for slot in played if not played[slot].closed]:
        now = rng.sample(live, rng.randint(1, len(live)))
        ticks, flushes = dict[int, int](), dict[int, tuple[int, bool]]()
        for slot in now:
            stop = finalize_at.get(slot, len(played[slot].audio))
            fits = [n for n in range(1, light.spec.max_ticks + 1) if player.tick_end(slot, n) <= stop]
            if fits:
                ticks[slot] = rng.choice((fits[0], fits[-1]))
            else:
                flushes[slot] = (stop, finalize_at.pop(slot, None) is None)
        seen |= set(ticks.values())
        span = SlotRange(first=min(now), n_slots=max(now) + 1 - min(now)) if direct else None
        assert not player.step(ticks, flushes, span).errors
    assert {1, light.spec.max_ticks} <= seen
    for slot, audio in zip(played, voices, strict=True):
        alone = SlotPlayer(light, 1)
        wanted = alone.open(0, audio)
        while slot == 1 and alone.tick_end(0) <= 31_000:
            alone.step([0])
        if slot == 1:
            alone.step((), {0: (31_000, False)})
        alone.play()
        assert played[slot].outputs == wanted.outputs


def test_a_step_leaves_other_slots_as_they_are(light: LightModel, voices: list[Samples]) -> None:
    player = SlotPlayer(light, 3)
    for slot in range(3):
        player.open(slot, voices[slot])
    player.step([0, 1, 2])
    before = player.snapshot(1, light.spec.state)
    player.step([2, 0])
    player.step([0, 2], span=SlotRange(first=0, n_slots=3))
    for name, tensor in player.snapshot(1, light.spec.state).items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("at", [0, 100, FIRST_TICK_SAMPLES - 1, 20_000, 2_560 * 9 + 240])
def test_a_flush_moves_only_the_utterance(light: LightModel, voices: list[Samples], at: int) -> None:
    audio = voices[1]
    flushed, plain = SlotPlayer(light, 1), SlotPlayer(light, 1)
    for player in (flushed, plain):
        player.open(0, audio)
        while player.tick_end(0) <= at:
            player.step([0])
    output = flushed.step(flushes={0: (at, False)}).outputs[0]
    assert isinstance(output, LiveOutput)
    assert output.ended is not None
    assert (output.ended.cause, output.ended.end_sample) == (UtteranceEnd.FINALIZE, at)
    for name in ("remainder", "hidden", "cells"):
        assert torch.equal(flushed.state[name], plain.state[name]), name
    flushed.step([0])
    plain.step([0])
    assert torch.equal(flushed.state["hidden"], plain.state["hidden"])


def test_a_row_that_is_no_number_fails_alone(light: LightModel, voices: list[Samples]) -> None:
    player = SlotPlayer(light, 2)
    player.open(0, np.full(16_000, np.nan, np.float32))
    player.open(1, voices[0])
    result = player.step([0, 1])
    assert set(result.errors) == {0}


def test_silence_ends_an_utterance_where_the_sequence_asks(light: LightModel, voices: list[Samples]) -> None:
    """An hour is never; a tick is the least."""
    causes = {}
    for asked in (None, 10, 0):
        state = SlotPlayer(light, 1).state
        first, found = 0, []
        audio = np.concatenate([voices[0], np.zeros(16_000, np.float32)])
        while (end := first + (TICK_SAMPLES if first else FIRST_TICK_SAMPLES)) <= len(audio):
            row = StepRow(
                slot=0,
                start=first == 0,
                flush=False,
                end=False,
                first_sample=first,
                audio=audio[first:end],
                endpoint_silence_ms=asked if first == 0 else None,
            )
            if row.start:
                for name, tensor in light.spec.state.items():
                    state[name][0] = tensor.initial
            output = light.step([row], state).outputs[0]
            assert isinstance(output, LiveOutput)
            found += [output.ended] if output.ended is not None else []
            first = end
        causes[asked] = len(found)
    assert causes[0] == 0
    assert 0 < causes[None] <= causes[10]


def test_an_utterance_is_cut_at_its_most_words(light: LightModel, voices: list[Samples]) -> None:
    loud = np.tile(voices[0][16_000:48_000], 12)
    ended = solo(light, np.where(np.abs(loud) < 0.02, 0.02, loud)).ended
    assert ended[0].cause is UtteranceEnd.LENGTH
    assert len(ended[0].words) == MAX_WORDS


def test_the_utterance_survives_its_slot() -> None:
    utterance = Utterance()
    for tick in range(5):
        utterance.hear(tick * 100, tick * 2_560, (tick + 1) * 2_560)
    utterance.rest(300)
    assert Utterance.unpack(utterance.pack()) == utterance
    assert Utterance.unpack([0] * len(utterance.pack())) == Utterance()


def test_no_two_symbols_are_spelt_alike() -> None:
    assert len({syllable(symbol) for symbol in range(512)}) == 512
