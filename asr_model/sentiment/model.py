"""The sentiment classifier as the service calls it: texts in, scores and labels out. Rows are independent."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from asr_model.contract import ModelSpec, Scheduler, TensorBatch
from asr_model.sentiment.features import BUCKETS, buckets_of
from asr_model.sentiment.settings import NAME, SentimentSettings
from asr_model.tensor_spec import TensorSpec
from asr_model.transcript import Sentiment


class SentimentModel:
    """A TensorModel (``asr_model.contract``): TEXT in, SCORE from -1 (negative) to 1 (positive) and LABEL out.

    Raises:
        ValueError: The weights cannot be read.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        try:
            with np.load(path) as file:
                weights, bias = file["weights"], float(file["bias"])
        except (OSError, EOFError, KeyError, ValueError) as error:
            raise ValueError(f"sentiment weights {path} cannot be read: {error}") from error
        if weights.shape != (BUCKETS,) or not np.isfinite(weights).all():
            raise ValueError(f"sentiment weights {path}: not {BUCKETS} numbers")
        self._weights = torch.from_numpy(weights.astype(np.float32))[:, None].to(device)
        self._bias = bias
        self._device = device

    @property
    def spec(self) -> ModelSpec:
        """The declaration: no state, any batch."""
        return ModelSpec(
            name=NAME,
            scheduler=Scheduler.DYNAMIC,
            inputs={"TEXT": TensorSpec(datatype="BYTES", shape=(1,))},
            outputs={
                "SCORE": TensorSpec(datatype="FP32", shape=(1,)),
                "LABEL": TensorSpec(datatype="BYTES", shape=(1,)),
            },
        )

    @torch.inference_mode()
    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor | NDArray[np.object_]]:
        """SCORE float32 [B, 1] and LABEL: ``positive``, ``neutral`` or ``negative``. Text is UTF-8; what is not is left
        out. A text without a known word has what the words in general have, about 0.
        """
        bags = [buckets_of(bytes(text).decode(errors="ignore")) for text in np.asarray(batch.inputs["TEXT"])[:, 0]]
        offsets = torch.tensor([0, *(len(bag) for bag in bags[:-1])], device=self._device).cumsum(0)
        ids = torch.tensor([bucket for bag in bags for bucket in bag], dtype=torch.int64, device=self._device)
        logits = embedding_bag(ids, self._weights, offsets, mode="sum") + self._bias
        scores = 2 * logits.sigmoid() - 1
        labels = np.array([[Sentiment.of(score).label.encode()] for (score,) in scores.tolist()], dtype=object)
        return {"SCORE": scores, "LABEL": labels}


def build(options: Mapping[str, object], device: torch.device) -> SentimentModel:
    """The model; option ``weights``: another file of weights.

    Raises:
        ValueError: An option is unknown, or the weights cannot be read.
    """
    return SentimentModel(SentimentSettings.of(options).path, device)
