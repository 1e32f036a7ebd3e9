"""What a sequence has sent so far, seen whole: its median and how many values there were. Its memory grows with it."""

from collections.abc import Mapping

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, State, StateTensor, TensorBatch
from asr_model.paged_cache import PagedCache
from asr_model.tensor.settings import HISTORY, HistorySettings
from asr_model.tensor_spec import TensorSpec

VALUES = "values"


class HistoryModel:
    """A TensorStreamingModel (``asr_model.contract``): VALUES of any number in; MEDIAN and COUNT of all so far out.

    The median of an even number of values is the lower of the middle two; of none, and where one is no number, NaN.
    """

    def __init__(self, settings: HistorySettings) -> None:
        self._settings = settings

    @property
    def spec(self) -> ModelSpec:
        """The declaration: the values themselves are the state."""
        settings = self._settings
        return ModelSpec(
            name=HISTORY,
            scheduler=Scheduler.SEQUENCE,
            state={
                VALUES: StateTensor(
                    shape=(settings.max_values,),
                    dtype=torch.float32,
                    page=settings.page_values,
                    share=settings.share,
                )
            },
            inputs={"VALUES": TensorSpec(datatype="FP32", shape=(-1,), ragged=True)},
            outputs={
                "MEDIAN": TensorSpec(datatype="FP32", shape=(1,)),
                "COUNT": TensorSpec(datatype="INT64", shape=(1,)),
            },
        )

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        """MEDIAN float32 [B, 1] and COUNT int64 [B, 1]."""
        cache = PagedCache(VALUES, state)
        cache.append(batch.slots, torch.as_tensor(batch.inputs["VALUES"]), batch.lengths["VALUES"] * batch.ready)
        values, counts = cache.read(batch.slots)
        return {"MEDIAN": _medians(values, counts)[:, None], "COUNT": counts[:, None]}


def build(options: Mapping[str, object], device: torch.device) -> HistoryModel:
    """The model; options: see ``HistorySettings``.

    Raises:
        ValueError: an option is unknown or has no such value.
    """
    return HistoryModel(HistorySettings.of(options))


def _medians(values: Tensor, counts: Tensor) -> Tensor:
    """Of the first int64 [B] values of each row of float32 [B, W]: float32 [B]."""
    nan = float("nan")
    if values.shape[1] == 0:
        return values.new_full((len(values),), nan)
    is_own = torch.arange(values.shape[1], device=values.device) < counts[:, None]
    ordered = values.masked_fill(~is_own, float("inf")).sort(1).values
    middle = ordered.gather(1, ((counts - 1) // 2).clamp(min=0)[:, None])[:, 0]
    has_none = (counts == 0) | (values.isnan() & is_own).any(1)
    return middle.masked_fill(has_none, nan)
