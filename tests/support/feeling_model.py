"""A sentiment model whose scores are plain arithmetic on the text, so that that of another text is a wrong number.
Importable by a worker process.
"""

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, TensorBatch
from asr_model.tensor_spec import TensorSpec


def score_of(text: str) -> float:
    """From -1 to 1, in eighths, which are exact."""
    return (sum(text.encode()) % 17 - 8) / 8


class FeelingModel:
    """A TensorModel: TEXT in, SCORE out. The text ``slow`` takes ``slow_s``; ``bad`` has no score."""

    def __init__(self, *, slow: str, slow_s: float, bad: str) -> None:
        self._slow, self._slow_s, self._bad = slow, slow_s, bad

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec(
            name="feeling",
            scheduler=Scheduler.DYNAMIC,
            inputs={"TEXT": TensorSpec(datatype="BYTES", shape=(1,))},
            outputs={"SCORE": TensorSpec(datatype="FP32", shape=(1,))},
        )

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor]:
        texts = [bytes(text).decode() for text in batch.inputs["TEXT"][:, 0]]
        if self._slow in texts:
            time.sleep(self._slow_s)
        scores = [float("nan") if text == self._bad else score_of(text) for text in texts]
        return {"SCORE": torch.tensor(scores)[:, None]}


def build(options: Mapping[str, object], device: torch.device) -> FeelingModel:
    """The model."""
    slow, bad = str(options.get("slow", "-")), str(options.get("bad", "-"))
    return FeelingModel(slow=slow, slow_s=float(str(options.get("slow_s", 0))), bad=bad)
