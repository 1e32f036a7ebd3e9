"""The accumulator model for audio that nobody chose: no sample of it makes it fail, crash or hang."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from asr_model.contract import SlotRange, State, StepOutput, StepRow
from server.engine.engine_config import EngineConfig
from tests.support.accumulator_model import AccumulatorModel, Options
from tests.support.engines import ACCUMULATOR, live_only


class CalmModel(AccumulatorModel):
    """Adds up whatever it hears."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        audio = [torch.from_numpy(row.audio.astype(np.float64)) for row in rows]
        return StepOutput(outputs=[self._row(row, samples, state) for row, samples in zip(rows, audio, strict=True)])


def make_calm(options: Options, device: torch.device) -> CalmModel:
    """Factory for a ModelSource."""
    return CalmModel()


def calm_engine(*, instances: int, slots: int) -> EngineConfig:
    """Live instances of the calm model, in threads."""
    engine = live_only(instances=instances, slots=slots)
    source = replace(ACCUMULATOR, factory="tests.support.calm_model:make_calm")
    return replace(engine, live=replace(engine.live, source=source))
