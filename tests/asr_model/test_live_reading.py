"""The batched reading equals the reference reading of one utterance at a time, tick for tick.

The reference (``incremental.py`` of the shared model folder) reads each file as one utterance, padded with zeros to the
end of its last tick.
"""

import importlib.util
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile
import torch

from asr_model.live.model import LiveModel
from asr_model.live.stem import TICK_SAMPLES
from tests.asr_model.conftest import Utterance
from tests.support.fixtures import shared_rows, shared_speech
from tests.support.slot_player import SlotPlayer

Trace = list[tuple[list[int], list[int]]]
"""Committed tokens and draft after each tick."""


def reference_folder() -> Path | None:
    """The shared model folder, beside the shared speech."""
    speech = shared_speech()
    folder = speech.parent / "models" if speech else None
    return folder if folder and (folder / "incremental.py").exists() else None


CLEAN = [row.path for row in shared_rows("clean")] if reference_folder() else []


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    folder = reference_folder()
    assert folder is not None
    sys.path.insert(0, os.fspath(folder))
    spec = importlib.util.spec_from_file_location("incremental", folder / "incremental.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(os.fspath(folder))


def padded(path: Path) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    audio, _ = soundfile.read(path, dtype="float32")
    return np.pad(audio, (0, -(len(audio) - 511) % TICK_SAMPLES)).astype(np.float32)


def batched(model: LiveModel, paths: list[Path], seed: int) -> tuple[list[Trace], list[str]]:
    """Traces and texts of the files, eight at a time in random slots, each row pausing at random."""
    rng, player = random.Random(seed), SlotPlayer(model, 11)
    traces: list[Trace] = [[] for _ in paths]
    texts = [""] * len(paths)
    todo, live = list(enumerate(paths)), dict[int, int]()
    while todo or live:
        while todo and len(live) < 8:
            number, path = todo.pop(0)
            slot = rng.choice([s for s in range(11) if s not in live])
            live[slot] = number
            player.open(slot, padded(path))
        now = [slot for slot in live if rng.random() < 0.8] or list(live)
        ticks = [slot for slot in now if player.has_tick(slot)]
        ends = {s: (len(player.sequences[s].audio), True) for s in now if s not in ticks}
        player.step(ticks, ends)
        for slot in ticks:
            state = {name: player.state[name][slot] for name in ("tokens", "token_count", "draft", "draft_size")}
            committed = state["tokens"][1 : int(state["token_count"])].tolist()
            traces[live[slot]].append((committed, state["draft"][: int(state["draft_size"])].tolist()))
        for slot in ends:
            texts[live.pop(slot)] = player.sequences[slot].text
    return traces, texts


@torch.inference_mode()
def expected(reference: ModuleType, network: torch.nn.Module, path: Path) -> tuple[Trace, str]:
    """What the reference says of one file."""
    decoder, tokenizer = reference.moonshine.decoder(), reference.moonshine.Tokenizer()
    features, _ = network(torch.from_numpy(padded(path))[None], 10, 166)
    memories = decoder.memories(features)
    reader, trace = reference.Reader(decoder, tokenizer), []
    for end in range(10, features.shape[1] + 1, 10):
        _, draft = reader.tick([(k[:, :, :end], v[:, :, :end]) for k, v in memories])
        trace.append((reader.committed[1:], list(draft)))
    rest = reader.finish(memories, int(features.shape[1] / reference.SECOND * 6.5) + 8)
    return trace, tokenizer.text(reader.committed[1:] + rest)


def check(model: LiveModel, reference: ModuleType, paths: list[Path], seed: int) -> None:
    network = reference.load(os.fspath(Path(reference.__file__ or "").parent / "live.safetensors"))
    for path, trace, text in zip(paths, *batched(model, paths, seed), strict=True):
        wanted, wanted_text = expected(reference, network, path)
        assert trace == wanted, path.name
        assert text == wanted_text, path.name


@pytest.mark.parametrize("paths", [CLEAN[:3]] if CLEAN else [], ids=["3 files"] if CLEAN else [])
def test_reading_equals_the_reference(bare_live: LiveModel, reference: ModuleType, paths: list[Path]) -> None:
    check(bare_live, reference, paths, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("paths", [CLEAN] if CLEAN else [], ids=["40 files"] if CLEAN else [])
def test_reading_equals_the_reference_on_all_files(
    bare_live: LiveModel, reference: ModuleType, paths: list[Path]
) -> None:
    check(bare_live, reference, paths, seed=2)


def test_more_tokens_than_anybody_says_end_the_reading_and_not_the_step(
    live: LiveModel, utterances: list[Utterance]
) -> None:
    """A decoder that runs on and on fills its room, and the utterance goes on without it."""
    player = SlotPlayer(live, 1)
    played = player.open(0, utterances[0].audio)
    for _ in range(12):
        player.step([0])
    capacity = player.state["tokens"].shape[1]
    n = int(player.state["token_count"][0])
    player.state["tokens"][0, n:] = player.state["tokens"][0, n - 1]
    player.state["token_count"][0] = capacity - 24
    assert not player.step([0]).errors
    player.play()
    assert int(player.state["token_count"][0]) < capacity
    assert played.closed
