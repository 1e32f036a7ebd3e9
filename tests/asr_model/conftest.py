"""The real live model, loaded once, and the six real utterances of ``audio_fixtures``."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from asr_model.contract import Samples
from asr_model.live.model import LiveModel, build
from clients.transcribe.audio_file import AudioFile
from clients.transcribe.transcription import model_audio
from tests.support.fixtures import Fixture, fixtures


@dataclass(frozen=True, slots=True)
class Utterance:
    """A recording of ``audio_fixtures`` at 16 kHz."""

    text: str
    audio: Samples


def samples_of(fixture: Fixture) -> Samples:
    """A fixture's audio at 16 kHz, mono."""
    return samples_of_file(fixture.path)


def samples_of_file(path: Path) -> Samples:
    """A file's audio at 16 kHz, mono."""
    with AudioFile(path) as file:
        return np.concatenate(list(model_audio(file)))


@cache
def live_model(**options: object) -> LiveModel:
    """The live model with these options, on the CPU, one for all tests."""
    return build(options, torch.device("cpu"))


@pytest.fixture(scope="session")
def live() -> LiveModel:
    """The live model as it is configured by default."""
    return live_model()


@pytest.fixture(scope="session")
def bare_live() -> LiveModel:
    """Reading alone: no endpoints, no skipping of silence, no guards."""
    return live_model(endpoints=False, skip_silence=False, guards=False, max_utterance_s=40.0)


@pytest.fixture(scope="session")
def utterances() -> list[Utterance]:
    """Six real utterances of six speakers."""
    found = [Utterance(f.text, samples_of(f)) for f in fixtures("utterance")]
    assert len(found) == 6
    return found
