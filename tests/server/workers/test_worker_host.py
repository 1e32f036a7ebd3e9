"""The model's side of a worker: four kinds of models, prepared for every batch that they may get."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from asr_model.contract import Model, ModelSpec, SlotRange, State, StateTensor, StepOutput, StepRow, TensorBatch
from asr_model.tensor.accumulator import AccumulatorModel
from asr_model.tensor.mean import MeanModel
from asr_model.tensor.settings import AccumulatorSettings
from asr_model.tensor_spec import TensorSpec
from asr_model.transcript import FinalOutput, LiveOutput
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchPlan, BatchResult, BatchRow, RequestBatch, Samples
from server.workers.device_gate import DeviceGate, cells_needed
from server.workers.orders import Load, Loaded, LoadLimits, ModelSource, Prepare, Prepared, Refused
from server.workers.worker_host import Host
from tests.support.accumulator_model import AccumulatorModel as ListeningAccumulator
from tests.support.accumulator_model import SumModel, exact_audio, summary
from tests.support.engines import ACCUMULATOR
from tests.support.turns import TurnRow, answers, floats, ints, request_batch, texts, turn_plan

LIMITS = LoadLimits(max_slots=4)
TUNED = replace(ACCUMULATOR, factory="tests.support.accumulator_model:make_tuned")
MASKED = ModelSource(name="masked", factory="tests.server.workers.test_worker_host:make_masked")


class MaskedModel(AccumulatorModel):
    """Its state begins as a file says."""

    def __init__(self, path: str) -> None:
        super().__init__(AccumulatorSettings(), torch.device("cpu"))
        self._path = path

    @property
    def spec(self) -> ModelSpec:
        return replace(super().spec, state={"sum": StateTensor(shape=(1,), dtype=torch.int32, initial_file=self._path)})


def make_masked(options: Mapping[str, object], device: torch.device) -> MaskedModel:
    return MaskedModel(str(options["path"]))


SIZES: list[int] = []
"""Of the batches that the watched models below were given."""


class WatchedMean(MeanModel):
    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor]:
        SIZES.append(len(batch.ready))
        return super().run_tensors(batch)


class WatchedSum(SumModel):
    def run(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[FinalOutput]:
        SIZES.append(len(audio))
        return super().run(audio, pause)


class WatchedListener(ListeningAccumulator):
    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        SIZES.append(len(rows))
        return super().step(rows, state)


def make_watched(options: Mapping[str, object], device: torch.device) -> Model:
    SIZES.clear()
    kinds: dict[object, Callable[[], Model]] = {"mean": WatchedMean, "sum": WatchedSum, "live": WatchedListener}
    return kinds[options["kind"]]()


def watched(kind: str) -> ModelSource:
    return ModelSource(name=kind, factory=f"{__name__}:make_watched", options={"kind": kind})


def host() -> Host:
    return Host(DeviceGate([0] * cells_needed(8, 8)), may_nice=False)


def load(source: ModelSource, **changes: Any) -> Load:
    return replace(Load(source=source, instance=0, device="cpu", threads=1), **changes)


def prepared(host: Host, order: Load, *, slots: int = 2, batches: tuple[int, ...] = ()) -> Prepared:
    loaded = host.carry_out(order)
    assert isinstance(loaded, Loaded), loaded
    reply = host.carry_out(Prepare(slots=slots, limits=LIMITS, batches=batches))
    assert isinstance(reply, Prepared), reply
    return reply


def told(host: Host, order: BatchPlan | RequestBatch) -> list[dict[str, list[Any]]]:
    outcome = host.carry_out(order)
    assert isinstance(outcome, BatchResult), outcome
    return answers(outcome)


def test_what_is_loaded_says_what_it_takes() -> None:
    loaded = host().carry_out(load(ModelSource(name="history")))
    assert isinstance(loaded, Loaded)
    assert (loaded.model, loaded.scheduler, loaded.listens, sorted(loaded.ragged)) == (
        "history",
        "sequence",
        False,
        ["VALUES"],
    )
    assert loaded.inputs == {"VALUES": TensorSpec(datatype="FP32", shape=(-1,), ragged=True)}
    assert set(loaded.outputs) == {"MEDIAN", "COUNT"}
    loaded = host().carry_out(load(ACCUMULATOR))
    assert isinstance(loaded, Loaded)
    assert (loaded.listens, loaded.inputs, loaded.max_ticks, loaded.optimize) == (True, {}, 1, "none")


def test_a_model_that_takes_turns_has_slots_and_runs_them() -> None:
    taking = host()
    reply = prepared(taking, load(ModelSource(name="accumulator")), slots=6, batches=(1, 2))
    assert (reply.slots, reply.streams) == (6, None)
    assert reply.state_bytes >= 6 * 4
    turns = [TurnRow(slot=5, arrays={"INPUT": ints(3)}, start=start) for start in (True, False)]
    assert [told(taking, turn_plan([turn])) for turn in turns] == [[{"OUTPUT": [[3]]}], [{"OUTPUT": [[6]]}]]


def test_the_memory_of_a_cache_that_grows_is_told() -> None:
    source = ModelSource(name="history", options={"max_values": 8, "page_values": 4, "share": 0.5})
    reply = prepared(host(), load(source), slots=4)
    assert reply.cache_bytes == 4 * 16
    assert reply.state_bytes > reply.cache_bytes


@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_a_model_without_state_is_warmed_up_with_every_batch_size(kind: str) -> None:
    reply = prepared(host(), load(watched(kind)), slots=0, batches=(4, 2))
    assert (SIZES, reply.slots) == ([1, 2, 4], 0)


@pytest.mark.parametrize(("slots", "sizes"), [(2, [1, 2]), (3, [1, 2, 3])])
def test_a_streaming_model_is_warmed_up_with_every_batch_size_that_its_slots_allow(
    slots: int, sizes: list[int]
) -> None:
    prepared(host(), load(watched("live")), slots=slots, batches=(8, 3, 2, 1))
    assert sorted(set(SIZES)) == sizes


def test_what_a_measurement_ran_is_not_warmed_up_again_and_what_it_left_out_is() -> None:
    reply = prepared(host(), load(watched("live")), slots=0, batches=(1, 2, 3))
    assert reply.streams is not None
    assert (reply.slots, sorted({1, 2, 3} - set(SIZES))) == (LIMITS.max_slots, [])
    assert SIZES.count(3) < SIZES.count(2) < SIZES.count(1)


def test_a_model_without_state_answers_its_requests() -> None:
    taking = host()
    prepared(taking, load(ModelSource(name="mean")), slots=0)
    assert told(taking, request_batch({"INPUT": floats(1, 2)})) == [{"MEAN": [[1.5]]}]


def row(slot: int, name: str, first_sample: int, samples: Samples, *, start: bool) -> BatchRow:
    return BatchRow(
        slot=SlotIndex(slot),
        generation=1,
        sequence_id=SequenceId(name),
        start=start,
        flush=False,
        end=False,
        first_sample=first_sample,
        n_samples=samples.size,
        ready_at_ns=0,
    )


@pytest.mark.parametrize("is_unpinned", [False, True])
def test_only_an_unpinned_instance_goes_by_the_name_of_a_sequence(is_unpinned: bool) -> None:
    """The second row names another slot: pinned, that is another state; unpinned, the sequence's own."""
    taking = host()
    prepared(taking, load(ACCUMULATOR, unpinned=is_unpinned))
    a, b = exact_audio(1, 71), exact_audio(2, 64)
    heard = []
    for slot, first_sample, samples in ((0, 0, a), (1, 71, b)):
        rows = (row(slot, "s", first_sample, samples, start=slot == 0),)
        result = taking.carry_out(BatchPlan(plan_id=1, instance=InstanceIndex(0), rows=rows, audio=(samples,)))
        assert isinstance(result, BatchResult)
        output = result.rows[0].output
        assert isinstance(output, LiveOutput)
        heard.append(output.committed[0].text)
    assert heard == [summary(a), summary(np.concatenate((a, b)) if is_unpinned else b)]


def test_initial_values_are_looked_at_when_the_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "sum.npy"
    source = replace(MASKED, options={"path": str(path)})
    refused = host().carry_out(load(source))
    assert isinstance(refused, Refused)
    assert refused.is_configuration
    assert refused.error.startswith(f"state sum: {path} is no NumPy file")
    np.save(path, np.array([100], dtype=np.int32))
    taking = host()
    prepared(taking, load(source))
    turn = TurnRow(slot=1, arrays={"INPUT": ints(5)}, start=True)
    for _ in range(2):
        assert told(taking, turn_plan([turn])) == [{"OUTPUT": [[105]]}]


@pytest.mark.parametrize(("asked", "used"), [("", "none"), ("none", "none"), ("int8", "int8")])
def test_what_is_asked_of_the_kernels_is_an_option_of_the_model(asked: str, used: str) -> None:
    loaded = host().carry_out(load(TUNED, optimize=asked))
    assert isinstance(loaded, Loaded)
    assert (loaded.optimize, loaded.optimizations) == (used, ("none", "int8"))


def test_a_model_that_does_not_do_what_is_asked_is_refused_with_what_it_does() -> None:
    refused = host().carry_out(load(replace(TUNED, options={"deaf": True}), optimize="int8"))
    words = "accumulator does not take optimize = 'int8'; here it takes none, int8"
    assert refused == Refused(error=words, is_configuration=True)


def test_one_that_has_no_other_kernels_says_so_instead_of_knowing_no_such_option() -> None:
    refused = host().carry_out(load(ModelSource(name="mean"), optimize="int8"))
    assert refused == Refused(error="mean takes optimize none, not 'int8'", is_configuration=True)


def test_what_crosses_to_a_process_and_back_survives_it() -> None:
    taking = host()
    source = ModelSource(name="echo")
    loaded = taking.carry_out(load(source))
    prepared(taking, load(source), slots=0)
    order = request_batch({"NUMBERS": floats(1, 2), "TEXT": texts("größe")})
    outcome = taking.carry_out(pickle.loads(pickle.dumps(order)))
    assert isinstance(outcome, BatchResult)
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    assert answers(pickle.loads(pickle.dumps(outcome))) == [{"NUMBERS": [[1.0, 2.0]], "TEXT": [["größe".encode()]]}]


def test_each_instance_announces_its_steps_at_its_own_place() -> None:
    cells = [0] * cells_needed(8, 8)
    taking = Host(DeviceGate(cells), may_nice=False)
    prepared(taking, load(ModelSource(name="accumulator"), gate=3))
    taking.carry_out(turn_plan([TurnRow(slot=0, arrays={"INPUT": ints(3)}, start=True)]))
    assert [place for place in range(8) if cells[2 * place]] == [3]
    assert cells[7] == 2
