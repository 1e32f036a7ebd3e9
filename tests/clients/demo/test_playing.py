"""Closed-loop clients of a real engine on the accumulator model."""

from dataclasses import replace

import numpy as np
import pytest

from clients.demo.playing import Played, TickGrid, play, play_all
from clients.demo.utterances import Utterance
from server.engine.engine_config import EngineConfig
from server.ids import SequenceId
from tests.support.accumulator_model import ENDPOINT, LOOKAHEAD_SAMPLES, POISON, TICK_SAMPLES, exact_audio, summary
from tests.support.engines import live_only, running

GRID = TickGrid(tick_samples=TICK_SAMPLES, lookahead_samples=LOOKAHEAD_SAMPLES)


def made(seed: int, n_samples: int) -> Utterance:
    return Utterance(name=f"{seed}", text="", samples=exact_audio(seed, n_samples), n_ticks=1)


def dynamic(config: EngineConfig) -> EngineConfig:
    return replace(config, live=replace(config.live, scheduler="dynamic", allow_wrong_scheduler=True))


@pytest.mark.parametrize(
    ("n_samples", "sizes"),
    [
        (0, [0]),
        (70, [70]),
        (71, [71, 0]),
        (72, [71, 1]),
        (71 + 64 + 63, [71, 64, 63]),
        (71 + 64 + 64, [71, 64, 64, 0]),
    ],
)
def test_pieces_complete_one_tick_each(n_samples: int, sizes: list[int]) -> None:
    samples = exact_audio(0, n_samples)
    pieces = GRID.pieces(samples)
    assert [piece.size for piece in pieces] == sizes
    assert np.array_equal(np.concatenate(pieces), samples)


async def test_one_client_hears_each_tick_in_turn() -> None:
    utterance = made(1, 71 + 64 + 10)
    async with running(live_only()) as engine:
        played = await play(engine, GRID, utterance, SequenceId("a"))
    assert [(told.tick, told.is_flush) for told in played.ticks] == [(1, False), (2, False), (3, True)]
    heard = [summary(utterance.samples[:end]) for end in (71, 135, 145)]
    assert [told.text for told in played.ticks] == heard
    assert (played.text, played.failure) == (heard[-1], "")
    assert {told.instance for told in played.ticks} == {played.ticks[0].instance}


async def test_utterances_within_are_told_one_after_the_other() -> None:
    audio = exact_audio(2, 71 + 64)
    audio[70] = ENDPOINT
    async with running(live_only()) as engine:
        played = await play(engine, GRID, replace(made(2, 1), samples=audio), SequenceId("a"))
    assert played.text == f"{summary(audio[:71])} {summary(audio)}"
    assert played.ticks[1].text == f"{summary(audio[:71])} {summary(audio)}"


@pytest.mark.parametrize("where", [3, 71 + 3, 71 + 64 + 3])
async def test_a_sequence_that_breaks_off_says_why(where: int) -> None:
    audio = exact_audio(3, 71 + 64 + 10)
    audio[where] = POISON
    async with running(live_only()) as engine:
        played = await play(engine, GRID, replace(made(3, 1), samples=audio), SequenceId("a"))
    assert played.failure == "poison"
    assert len(played.ticks) == (where > 70) + (where > 134)


@pytest.mark.parametrize("scheduler", ["sequence", "dynamic"])
async def test_clients_side_by_side(scheduler: str) -> None:
    """The same engine under either scheduler: right under the one, wrong and without an error under the other."""
    config = live_only(instances=2, slots=16, step_s=0.002)
    config = dynamic(config) if scheduler == "dynamic" else config
    hands = [[made(10 * client + index, 71 + 64 * 8) for index in range(2)] for client in range(5)]
    told: list[Played] = []
    async with running(config) as engine:
        played = await play_all(engine, GRID, hands, told.append)
    assert [each.utterance for each in played] == [utterance for hand in hands for utterance in hand]
    assert len(told) == 10
    assert not any(each.failure for each in played)
    assert all(len(each.ticks) == 10 for each in played)
    right = [each.text == summary(each.utterance.samples) for each in played]
    where = [len({tick.instance for tick in each.ticks}) for each in played]
    if scheduler == "sequence":
        assert all(right)
        assert set(where) == {1}
    else:
        assert not all(right)
        assert max(where) == 2
