"""The streamed encoder equals the offline masked pass, whatever company its rows have."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from asr_model.live.network import LiveNetwork, load_network
from asr_model.live.offline import encode
from asr_model.live.settings import TICK_FRAMES, LiveSettings
from asr_model.live.slot_rows import SlotRows
from asr_model.live.slot_state import declare
from asr_model.live.stem import FIRST_TICK_SAMPLES, TICK_SAMPLES
from asr_model.live.streaming_encoder import StreamingEncoder
from tests.asr_model.conftest import Utterance

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def network() -> LiveNetwork:
    return load_network()


def streamed(network: LiveNetwork, audios: list[Tensor], slots: list[int], settings: LiveSettings) -> list[Tensor]:
    """Features of each audio, streamed tick by tick in the given slots; rows pause at random."""
    rng = random.Random(5)
    state = {
        name: torch.full((max(slots) + 2, *t.shape), t.initial, dtype=t.dtype) for name, t in declare(settings).items()
    }
    encoder, position = StreamingEncoder(network, settings), [0] * len(audios)
    parts: list[list[Tensor]] = [[] for _ in audios]
    while True:
        ready = [
            i for i, a in enumerate(audios) if position[i] + FIRST_TICK_SAMPLES - (position[i] > 0) * 511 <= len(a)
        ]
        if not ready:
            return [torch.cat(p) for p in parts]
        ready = sorted(rng.sample(ready, rng.randint(1, len(ready))), key=lambda i: slots[i])
        batch = torch.zeros(len(ready), FIRST_TICK_SAMPLES)
        for row, i in enumerate(ready):
            size = FIRST_TICK_SAMPLES if position[i] == 0 else TICK_SAMPLES
            batch[row, :size] = audios[i][position[i] : position[i] + size]
            position[i] += size
        rows = SlotRows.of(torch.tensor([slots[i] for i in ready]))
        features, _ = encoder.step(rows, batch, torch.zeros(len(ready), dtype=torch.bool), state)
        for row, i in enumerate(ready):
            parts[i].append(features[row])


@pytest.mark.parametrize(("slots", "left"), [((0, 1, 2), 166), ((7, 0, 3), 166), ((2, 1, 9), 43)])
@torch.inference_mode()
def test_streamed_equals_offline(
    network: LiveNetwork, utterances: list[Utterance], slots: tuple[int, ...], left: int
) -> None:
    audios = [torch.from_numpy(u.audio) for u in utterances[:3]]
    audios[0] = torch.cat((torch.zeros(5000), audios[0] * 0.1, torch.zeros(30_000), audios[0]))
    for audio, found in zip(
        audios, streamed(network, audios, list(slots), LiveSettings(left_frames=left)), strict=True
    ):
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
    no, yes = torch.tensor([False]), torch.tensor([True])
    position = 0
    for tick in range(25):  # past the ring's length, so that a flush overwrites live entries before it puts them back
        size = FIRST_TICK_SAMPLES if tick == 0 else TICK_SAMPLES
        partial = np.zeros(FIRST_TICK_SAMPLES, np.float32)
        partial[: 160 * tick] = audio[position : position + 160 * tick]
        before = {name: tensor.clone() for name, tensor in state.items()}
        flushed, _ = encoder.step(rows, torch.from_numpy(partial)[None], yes, state)
        assert all(torch.equal(before[name], state[name]) for name in state)
        head = torch.from_numpy(np.concatenate((audio[: position + 160 * tick], np.zeros(size, np.float32))))
        whole = TICK_SAMPLES * (tick + 1) + 511
        offline, _ = encode(network, head[None, :whole])
        assert float((flushed[0] - offline[0, -TICK_FRAMES:]).abs().max()) < TOLERANCE
        tick_audio = torch.zeros(1, FIRST_TICK_SAMPLES)
        tick_audio[0, :size] = torch.from_numpy(audio[position : position + size])
        encoder.step(rows, tick_audio, no, state)
        position += size
