"""The streamed encoder equals the offline masked pass, whatever company its rows have."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from asr_model.contract import SlotRange
from asr_model.live.network import LiveNetwork, load_network
from asr_model.live.offline import encode
from asr_model.live.settings import MAX_TICKS, TICK_FRAMES, LiveSettings
from asr_model.live.slot_rows import SlotRows
from asr_model.live.slot_state import declare
from asr_model.live.stem import FIRST_TICK_SAMPLES, TICK_SAMPLES, Ticks
from asr_model.live.streaming_encoder import StreamingEncoder, advance
from tests.asr_model.conftest import Utterance

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def network() -> LiveNetwork:
    return load_network()


def streamed(
    network: LiveNetwork, audios: list[Tensor], slots: list[int], settings: LiveSettings, most: int, *, direct: bool
) -> list[Tensor]:
    """Features of each audio, streamed in the given slots; rows pause at random and then catch up, up to ``most`` ticks
    a step."""
    rng = random.Random(5)
    state = {
        name: torch.full((max(slots) + 2, *t.shape), t.initial, dtype=t.dtype) for name, t in declare(settings).items()
    }
    encoder, position = StreamingEncoder(network, settings), [0] * len(audios)
    parts: list[list[Tensor]] = [[] for _ in audios]
    while True:
        left = [(len(a) - 511) // TICK_SAMPLES - at // TICK_SAMPLES for a, at in zip(audios, position, strict=True)]
        ready = [i for i, n in enumerate(left) if n]
        if not ready:
            return [torch.cat(p) for p in parts]
        ready = sorted(rng.sample(ready, rng.randint(1, len(ready))), key=lambda i: slots[i])
        counts = [rng.randint(1, min(most, left[i])) for i in ready]
        audio = torch.zeros(sum(counts), FIRST_TICK_SAMPLES)
        for at, i in enumerate(i for i, n in zip(ready, counts, strict=True) for _ in range(n)):
            size = FIRST_TICK_SAMPLES if position[i] == 0 else TICK_SAMPLES
            audio[at, :size] = audios[i][position[i] : position[i] + size]
            position[i] += size
        span = SlotRange(first=min(slots), n_slots=max(slots) + 1 - min(slots)) if direct else None
        rows, ticks = SlotRows.of(torch.tensor([slots[i] for i in ready]), span), Ticks.of(counts, audio.device)
        features, _ = encoder.step(rows, audio, ticks, torch.zeros(len(ready), dtype=torch.bool), state)
        for i, n, found in zip(ready, counts, torch.split(features, counts), strict=True):
            parts[i].append(found.flatten(0, 1))
            for _ in range(n):
                advance(torch.tensor([slots[i]]), state)


@pytest.mark.parametrize(
    ("slots", "left", "most", "direct"),
    [
        pytest.param((0, 1, 2), 166, 1, False, id="side by side"),
        pytest.param((7, 0, 3), 166, 1, True, id="a range"),
        pytest.param((2, 1, 9), 43, 1, False, id="gathered, little context"),
        pytest.param((0, 1, 2), 166, MAX_TICKS, True, id="catching up in a range"),
        pytest.param((2, 1, 9), 43, MAX_TICKS, False, id="catching up gathered"),
    ],
)
@torch.inference_mode()
def test_streamed_equals_offline(
    network: LiveNetwork, utterances: list[Utterance], slots: tuple[int, ...], left: int, most: int, direct: bool
) -> None:
    audios = [torch.from_numpy(u.audio) for u in utterances[:3]]
    audios[0] = torch.cat((torch.zeros(5000), audios[0] * 0.1, torch.zeros(30_000), audios[0]))
    settings = LiveSettings(left_frames=left)
    for audio, found in zip(audios, streamed(network, audios, list(slots), settings, most, direct=direct), strict=True):
        whole = (len(audio) - 511) // TICK_SAMPLES * TICK_SAMPLES + 511
        offline, _ = encode(network, audio[None, :whole], left)
        assert found.shape == offline[0].shape
        assert len(found) % TICK_FRAMES == 0
        assert float((found - offline[0]).abs().max()) < TOLERANCE


@torch.inference_mode()
def test_a_flush_computes_the_padded_tick_and_leaves_the_state_bit_equal(
    network: LiveNetwork, utterances: list[Utterance]
) -> None:
    settings = LiveSettings()
    state = {name: torch.full((2, *t.shape), t.initial, dtype=t.dtype) for name, t in declare(settings).items()}
    encoder, rows, audio = StreamingEncoder(network, settings), SlotRows.of(torch.tensor([1])), utterances[0].audio
    no, yes, one = torch.tensor([False]), torch.tensor([True]), Ticks.of([1], torch.device("cpu"))
    position = 0
    for tick in range(25):  # past the ring's length, so that a flush overwrites live entries before it puts them back
        size = FIRST_TICK_SAMPLES if tick == 0 else TICK_SAMPLES
        partial = np.zeros(FIRST_TICK_SAMPLES, np.float32)
        partial[: 160 * tick] = audio[position : position + 160 * tick]
        before = {name: tensor.clone() for name, tensor in state.items()}
        flushed, _ = encoder.step(rows, torch.from_numpy(partial)[None], one, yes, state)
        assert all(torch.equal(before[name], state[name]) for name in state)
        head = torch.from_numpy(np.concatenate((audio[: position + 160 * tick], np.zeros(size, np.float32))))
        whole = TICK_SAMPLES * (tick + 1) + 511
        offline, _ = encode(network, head[None, :whole])
        assert float((flushed[0] - offline[0, -TICK_FRAMES:]).abs().max()) < TOLERANCE
        tick_audio = torch.zeros(1, FIRST_TICK_SAMPLES)
        tick_audio[0, :size] = torch.from_numpy(audio[position : position + size])
        encoder.step(rows, tick_audio, one, no, state)
        advance(rows.slots, state)
        position += size
