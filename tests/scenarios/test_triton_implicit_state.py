"""Triton's tests of state that the server keeps (``L0_implicit_state``), by their names, on the real state store; and
its tests of the sequence batcher again, as Triton runs them again with such state.

Triton's models have one state each, and its ``test_request_output`` cannot fail (``assertTrue(value, 1)``). Here the
catalogue runs on four tensors of one shape whose names sort otherwise than they are declared, and every answer is
compared with the definition and with the same sequence alone.
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from asr_model.contract import ModelSpec, State, StateTensor, TensorBatch
from asr_model.tensor.history import HistoryModel
from asr_model.tensor.settings import HistorySettings
from asr_model.tensor_spec import TensorSpec
from server.plan import BatchFailure, BatchResult
from server.workers.tensor_instance import TensorStreamingInstance
from tests.scenarios import test_triton_oldest_and_cancellation, test_triton_sequence_batcher
from tests.support.crowd_bench import CrowdBench
from tests.support.factories import make_sequence_config
from tests.support.timeline import assert_timeline
from tests.support.turns import TurnRow, answers, errors, floats, ints, turn_plan

CATALOGUE = {**test_triton_sequence_batcher.CATALOGUE, **test_triton_oldest_and_cancellation.CATALOGUE}
STRATEGIES = pytest.mark.parametrize("is_direct", [False, True], ids=["oldest", "direct"])


class Summing:
    """Adds INPUT to the state ``uses``, and tells it.

    Args:
        uses: The state's name in the step.
        declares: In the declaration.
        keeps: Whether it writes the sum back.
        tells_state: Whether the state is an output too.
        **entry: Of the declared state.
    """

    def __init__(
        self, uses: str, declares: str = "held", *, keeps: bool = True, tells_state: bool = False, **entry: Any
    ) -> None:
        self._uses, self._keeps, self._tells_state = uses, keeps, tells_state
        outputs = ("OUTPUT", "OUTPUT_STATE") if tells_state else ("OUTPUT",)
        one = TensorSpec(datatype="INT32", shape=(1,))
        self.spec = ModelSpec(
            name="summing",
            scheduler=None,
            state={declares: StateTensor(shape=(1,), dtype=torch.int32, **entry)} if declares else {},
            inputs={"INPUT": one},
            outputs=dict.fromkeys(outputs, one),
        )

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        held = state[self._uses]
        sums = held[batch.slots] + torch.as_tensor(batch.inputs["INPUT"]) * batch.ready[:, None]
        if self._keeps:
            held[batch.slots] = sums
        return {"OUTPUT": sums, **({"OUTPUT_STATE": held[batch.slots]} if self._tells_state else {})}


def summing(*names: str, slots: int = 4, **options: Any) -> TensorStreamingInstance:
    return TensorStreamingInstance(Summing(*names, **options), slots, "cpu")


def add(slot: int, value: int = 1, *, start: bool = False, end: bool = False) -> TurnRow:
    return TurnRow(slot=slot, arrays={"INPUT": ints(value)}, start=start, end=end)


def sums(instance: TensorStreamingInstance, *turns: TurnRow, is_direct: bool = False) -> list[int]:
    return [told["OUTPUT"][0][0] for told in answers(instance.run_step(turn_plan(turns, is_direct=is_direct)))]


@pytest.mark.parametrize(
    ("uses", "declares"), [("undefined", ""), ("undefined", "held")], ids=["no_implicit_state", "wrong_name"]
)
def test_no_implicit_state_and_wrong_implicit_state_name(uses: str, declares: str) -> None:
    """The step fails as a whole, by name, and tells nothing of the inside."""
    outcome = summing(uses, declares).run_step(turn_plan([add(0, start=True)]))
    assert outcome == BatchFailure(plan_id=5, error="KeyError")


@STRATEGIES
def test_implicit_state_single_buffer(is_direct: bool) -> None:
    """There is one buffer, written in place: no second one, no copy that is swapped in."""
    instance = summing("held")
    before = instance.store.tensors["held"].data_ptr()
    assert sums(instance, add(0, 1, start=True), add(2, 5, start=True), is_direct=is_direct) == [1, 5]
    assert [sums(instance, add(0, 1), add(2, 5), is_direct=is_direct) for _ in range(3)] == [[2, 10], [3, 15], [4, 20]]
    assert instance.store.tensors["held"].data_ptr() == before
    assert instance.store.tensors["held"][:, 0].tolist() == [4, 0, 20, 0]


@STRATEGIES
def test_implicit_state_growable_memory(is_direct: bool) -> None:
    """It grows by pages, up to a bound that is told; what was there stays as it was; END gives all of it back."""
    settings = HistorySettings.of({"max_values": 1_024, "page_values": 64, "share": 0.5})
    instance = TensorStreamingInstance(HistoryModel(settings), 4, "cpu")
    store, chance = instance.store, Random(3)
    page_bytes, heard = 64 * 4, {0: [0.0], 3: [0.0]}
    for step in range(12):
        values = {slot: [chance.random() for _ in range(chance.randrange(1, 60))] for slot in heard}
        turns = [
            TurnRow(slot=slot, arrays={"VALUES": floats(*each)}, start=not step, end=step == 11)
            for slot, each in values.items()
        ]
        heard = {slot: values[slot] if not step else heard[slot] + values[slot] for slot in heard}
        used = sum(-(-len(each) // 64) for each in heard.values()) * page_bytes
        told = answers(instance.run_step(turn_plan(turns, is_direct=is_direct)))
        assert [each["COUNT"][0][0] for each in told] == [len(each) for each in heard.values()]
        assert [each["MEDIAN"][0][0] for each in told] == [
            np.sort(np.array(each, dtype=np.float32))[(len(each) - 1) // 2] for each in heard.values()
        ]
        assert store.cache_bytes_used == (0 if step == 11 else used) <= store.cache_bytes
    assert store.cache_bytes == 4 * 1_024 * 4 // 2
    assert len(heard[0]) > 256


def test_growable_memory_that_is_used_up_fails_who_needs_more_and_nobody_else() -> None:
    settings = HistorySettings.of({"max_values": 64, "page_values": 16, "share": 0.5})
    instance = TensorStreamingInstance(HistoryModel(settings), 4, "cpu")
    fill = [TurnRow(slot=slot, arrays={"VALUES": floats(*[1.0] * 64)}, start=True) for slot in (0, 1)]
    assert errors(instance.run_step(turn_plan(fill))) == [None, None]
    more = [TurnRow(slot=slot, arrays={"VALUES": floats(2.0)}, start=slot == 2) for slot in (1, 2)]
    assert errors(instance.run_step(turn_plan(more))) == [
        "values is full: a sequence may hold 64 entries",
        "values has no page left: all 8 are in use",
    ]
    last = [TurnRow(slot=0, arrays={"VALUES": floats()}, end=True)]
    assert answers(instance.run_step(turn_plan(last)))[0]["COUNT"] == [[64]]


@STRATEGIES
def test_no_update(is_direct: bool) -> None:
    """A model that does not write its state meets the initial one every time."""
    instance = summing("held", keeps=False)
    told = [sums(instance, add(1, start=not step, end=step == 11), is_direct=is_direct) for step in range(12)]
    assert told == [[1]] * 12
    assert instance.store.is_clean(1)


def test_request_output_not_allowed() -> None:
    """State is no output; that a client who asks for it is refused by name is said in the tests over the wire."""
    (told,) = answers(summing("held").run_step(turn_plan([add(0, start=True)])))
    assert told == {"OUTPUT": [[1]]}


@STRATEGIES
def test_request_output(is_direct: bool) -> None:
    """State that is an output too is that of the row, after its step."""
    instance = summing("held", tells_state=True)
    instance.run_step(turn_plan([add(0, 4, start=True), add(2, 70, start=True)]))
    told = answers(instance.run_step(turn_plan([add(0, 1), add(2, 7)], is_direct=is_direct)))
    assert told == [{"OUTPUT": [[5]], "OUTPUT_STATE": [[5]]}, {"OUTPUT": [[77]], "OUTPUT_STATE": [[77]]}]


@pytest.mark.parametrize("initial", ["zero_data", "data_file", "constant"])
@STRATEGIES
def test_initial_state(tmp_path: Path, initial: str, is_direct: bool) -> None:
    """Also of a slot that had a tenant before, and of no neighbour; where none is set, Triton's is garbage."""
    np.save(tmp_path / "held.npy", np.array([30], dtype=np.int32))
    entries: dict[str, dict[str, Any]] = {
        "zero_data": {},
        "data_file": {"initial_file": str(tmp_path / "held.npy")},
        "constant": {"initial": 30},
    }
    first = 0 if initial == "zero_data" else 30
    instance = summing("held", **entries[initial])
    assert sums(instance, add(0, 1, start=True), add(1, 2, start=True), add(2, 3, start=True)) == [
        first + 1,
        first + 2,
        first + 3,
    ]
    assert sums(instance, add(0, 1), add(2, 3, start=True), is_direct=is_direct) == [first + 2, first + 3]
    assert sums(instance, add(1, 0)) == [first + 2]


def test_a_model_that_fails_leaves_its_slot_in_doubt_until_it_is_scrubbed() -> None:
    """Triton's two buffers keep the state of a failed step as it was; here the sequence ends, and the slot is proved
    clean before anybody has it again."""
    instance = summing("held")
    instance.store.tensors["held"][1] = 99
    outcome = instance.run_step(turn_plan([], scrub=(1,)))
    assert isinstance(outcome, BatchResult)
    assert outcome.scrubbed == (1,)
    assert instance.store.is_clean(1)


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_sequence_batcher_again_with_implicit_state(name: str) -> None:
    overrides, timeline = CATALOGUE[name]
    bench = assert_timeline(make_sequence_config(**overrides), timeline, CrowdBench)
    assert isinstance(bench, CrowdBench)
    assert bench.differ_from_solo() == []
