"""Models that take tensors: each turn meets its own state, each request gets its own part, each fault is its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from asr_model.contract import ModelSpec, State, StateTensor, TensorBatch
from asr_model.tensor.accumulator import AccumulatorModel
from asr_model.tensor.echo import EchoModel
from asr_model.tensor.history import HistoryModel
from asr_model.tensor.mean import MeanModel
from asr_model.tensor.settings import AccumulatorSettings, HistorySettings
from asr_model.tensor_spec import TensorSpec
from server.plan import BatchFailure, BatchResult
from server.workers.lone_turns import run_lone_turns
from server.workers.tensor_instance import TensorInstance, TensorStreamingInstance, check_ragged, nothing_for
from tests.support.turns import Arrays, TurnRow, answers, errors, floats, ints, request_batch, texts, turn_plan

CPU = torch.device("cpu")


def accumulator(slots: int = 4, *, corrid: bool = False) -> TensorStreamingInstance:
    return TensorStreamingInstance(AccumulatorModel(AccumulatorSettings(corrid=corrid), CPU), slots, "cpu")


def history(slots: int = 4, **settings: Any) -> TensorStreamingInstance:
    return TensorStreamingInstance(HistoryModel(HistorySettings.of(settings)), slots, "cpu")


def add(slot: int, value: int, *, start: bool = False, end: bool = False, correlation_id: int | str = 7) -> TurnRow:
    return TurnRow(slot=slot, arrays={"INPUT": ints(value)}, start=start, end=end, correlation_id=correlation_id)


def sums(instance: TensorStreamingInstance, *turns: TurnRow, is_direct: bool = False) -> list[int]:
    return [told["OUTPUT"][0][0] for told in answers(instance.run_step(turn_plan(turns, is_direct=is_direct)))]


STRATEGIES = pytest.mark.parametrize("is_direct", [False, True], ids=["gathered", "direct"])


@STRATEGIES
def test_turns_add_up_in_their_own_slots(is_direct: bool) -> None:
    instance = accumulator()
    told = sums(instance, add(0, 10, start=True), add(3, 7, start=True), is_direct=is_direct)
    told += sums(instance, add(0, 5), add(2, 100, start=True), add(3, 1), is_direct=is_direct)
    assert told == [10, 7, 15, 100, 8]
    assert instance.store.tensors["sum"][:, 0].tolist() == [15, 0, 100, 8]


@STRATEGIES
def test_a_start_in_a_mixed_step_wipes_the_former_tenant_and_no_other_slot(is_direct: bool) -> None:
    instance = accumulator()
    instance.store.tensors["sum"][:, 0] = torch.tensor([1, 20, 300, 4000])
    assert sums(instance, add(0, 1), add(2, 5, start=True), is_direct=is_direct) == [2, 5]
    assert instance.store.tensors["sum"][:, 0].tolist() == [2, 20, 5, 4000]


def test_the_last_answer_has_the_correlation_id_added_and_its_state_has_not() -> None:
    instance = accumulator(corrid=True)
    assert sums(instance, add(1, 10, start=True, correlation_id=1000), add(2, 1, start=True)) == [10, 1]
    ids: dict[int, int | str] = {1: 1000, 2: "2000", 3: "who"}
    turns = [add(slot, 5, start=slot == 3, end=True, correlation_id=ids[slot]) for slot in ids]
    assert sums(instance, *turns) == [1015, 2006, 5]
    assert instance.store.tensors["sum"][:, 0].tolist() == [0, 15, 6, 5]
    assert sums(instance, add(1, 0, start=True, end=True, correlation_id=2**64 - 1)) == [-1]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"INPUT": floats(1.0)}, "input INPUT is FP32, it must be INT32"),
        ({"INPUT": np.ones((1, 1), np.complex64)}, "input INPUT is complex64, it must be INT32"),
        ({"INPUT": ints(1, 2)}, "input INPUT has shape [1, 2], it must be [1, 1]"),
        ({"INPUT": np.ones((2, 1), np.int32)}, "input INPUT has shape [2, 1], it must be [1, 1]"),
        ({"INPUT": np.ones(1, np.int32)}, "input INPUT has shape [1], it must be [1, 1]"),
        ({}, "input INPUT is missing"),
        ({"INPUT": ints(1), "OTHER": ints(1)}, "the model has no input OTHER; it has INPUT"),
    ],
)
def test_a_turn_that_the_model_does_not_take_fails_alone(arrays: Arrays, words: str) -> None:
    instance = accumulator()
    plan = turn_plan([add(0, 1, start=True), TurnRow(slot=1, arrays=arrays, start=True), add(2, 3, start=True)])
    result = instance.run_step(plan)
    assert errors(result) == [None, words, None]
    assert instance.store.tensors["sum"][:, 0].tolist() == [1, 0, 3, 0]
    assert isinstance(result, BatchResult)
    assert result.counters == {"turns": 2}


def test_a_step_in_which_every_turn_is_wrong_runs_no_model() -> None:
    plan = turn_plan([TurnRow(slot=1, arrays={}, start=True)])
    assert errors(accumulator().run_step(plan)) == ["input INPUT is missing"]


class Crossed:
    """Three states, inputs and outputs whose names sort in every order but one another's: each state adds up one input,
    each output tells one state."""

    WAYS = (
        ("INPUT_c", "cache_last_channel_len", "a_out"),
        ("INPUT_a", "z_in", "m_out"),
        ("INPUT_b", "cache_last_channel", "Z"),
    )
    spec = ModelSpec(
        name="crossed",
        scheduler=None,
        state={
            "cache_last_channel_len": StateTensor(shape=(), dtype=torch.int32),
            "z_in": StateTensor(shape=(1,), dtype=torch.int32),
            "cache_last_channel": StateTensor(shape=(1, 1), dtype=torch.int64),
        },
        inputs={name: TensorSpec(datatype="INT32", shape=(1,)) for name in ("INPUT_b", "INPUT_c", "INPUT_a")},
        outputs={name: TensorSpec(datatype="INT32", shape=(1,)) for name in ("m_out", "Z", "a_out")},
    )

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        outputs = {}
        for given_name, kept, told in self.WAYS:
            values = torch.as_tensor(batch.inputs[given_name])[:, 0] * batch.ready
            shape = (-1, *[1] * (state[kept].dim() - 1))
            state[kept].index_add_(0, batch.slots, values.view(shape).to(state[kept].dtype))
            outputs[told] = state[kept][batch.slots].view(-1, 1).to(torch.int32)
        return outputs


@STRATEGIES
@pytest.mark.parametrize("order", [("INPUT_a", "INPUT_b", "INPUT_c"), ("INPUT_c", "INPUT_b", "INPUT_a")])
def test_states_inputs_and_outputs_are_never_swapped_whatever_their_names(
    is_direct: bool, order: tuple[str, ...]
) -> None:
    instance = TensorStreamingInstance(Crossed(), 4, "cpu")

    def turn(slot: int, value: int, *, start: bool) -> TurnRow:
        values = {"INPUT_a": ints(value), "INPUT_b": ints(10 * value), "INPUT_c": ints(100 * value)}
        return TurnRow(slot=slot, arrays={name: values[name] for name in order}, start=start)

    instance.run_step(turn_plan([turn(0, 1, start=True), turn(2, 4, start=True)], is_direct=is_direct))
    told = answers(
        instance.run_step(turn_plan([turn(0, 2, start=False), turn(2, 5, start=False)], is_direct=is_direct))
    )
    assert told == [
        {"m_out": [[3]], "Z": [[30]], "a_out": [[300]]},
        {"m_out": [[9]], "Z": [[90]], "a_out": [[900]]},
    ]
    assert instance.store.tensors["z_in"][:, 0].tolist() == [3, 0, 9, 0]


def test_a_range_without_a_row_in_the_middle_is_not_ready_there_and_hears_nothing() -> None:
    class Watching(AccumulatorModel):
        def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
            seen.append(batch)
            return super().step_tensors(batch, state)

    seen: list[TensorBatch] = []
    instance = TensorStreamingInstance(Watching(AccumulatorSettings(), CPU), 6, "cpu")
    turns = [add(1, 10, start=True, correlation_id="x"), add(4, 40, end=True, correlation_id=9)]
    sums(instance, *turns, is_direct=True)
    sums(instance, *reversed(turns))
    direct, gathered = seen
    assert direct.slots.tolist() == [1, 2, 3, 4]
    assert direct.ready.tolist() == [True, False, False, True]
    assert direct.start.tolist() == [True, False, False, False]
    assert direct.end.tolist() == [False, False, False, True]
    assert direct.correlation_ids == ("x", 0, 0, 9)
    assert torch.as_tensor(direct.inputs["INPUT"]).tolist() == [[10], [0], [0], [40]]
    assert (gathered.slots.tolist(), gathered.ready.tolist()) == ([4, 1], [True, True])


def values(slot: int, *given_values: float, start: bool = False, end: bool = False) -> TurnRow:
    return TurnRow(slot=slot, arrays={"VALUES": floats(*given_values)}, start=start, end=end)


def medians(outcome: BatchResult | BatchFailure) -> list[tuple[float, int]]:
    return [(told["MEDIAN"][0][0], told["COUNT"][0][0]) for told in answers(outcome)]


@STRATEGIES
def test_history_is_of_everything_that_a_sequence_sent_and_of_nothing_else(is_direct: bool) -> None:
    instance = history(page_values=2, max_values=8)
    first = turn_plan([values(0, 5.0, 1.0, 3.0, start=True), values(3, 9.0, start=True)], is_direct=is_direct)
    second = turn_plan([values(0, -8.0), values(2, start=True), values(3, 1.0, 2.0, 0.0)], is_direct=is_direct)
    assert medians(instance.run_step(first)) == [(3.0, 3), (9.0, 1)]
    told = medians(instance.run_step(second))
    assert (told[0], told[2]) == ((1.0, 4), (1.0, 4))
    assert np.isnan(told[1][0])
    assert told[1][1] == 0


def test_a_history_is_bounded_by_its_pages_and_the_row_that_wants_more_fails_alone() -> None:
    instance = history(slots=4, page_values=4, max_values=16, share=0.5)
    instance.run_step(turn_plan([values(slot, *[1.0] * 8, start=True) for slot in range(3)]))
    result = instance.run_step(turn_plan([values(0, *[2.0] * 9), values(1, 5.0), values(2, 1.0, end=True)]))
    assert errors(result) == ["values is full: a sequence may hold 16 entries", None, None]
    assert isinstance(result, BatchResult)
    assert result.counters["cache_bytes"] == (2 + 3) * 16, "the pages of the sequence that ended are not free"
    result = instance.run_step(turn_plan([values(3, *[1.0] * 16, start=True), values(1, *[3.0] * 4)]))
    assert errors(result) == ["values has no page left: all 8 are in use", None]
    assert medians(instance.run_step(turn_plan([values(1)]))) == [(1.0, 13)]
    result = instance.run_step(turn_plan([values(3, *[1.0] * 16, start=True)], scrub=[0]))
    assert errors(result) == [None], "the scrubbed slot's pages are not free"
    assert isinstance(result, BatchResult)
    assert result.scrubbed == (0,)


def test_the_pages_of_a_sequence_that_was_cancelled_are_free_for_those_that_go_on() -> None:
    instance = history(slots=4, page_values=4, max_values=16, share=0.5)
    instance.run_step(turn_plan([values(slot, *[float(slot)] * 16, start=True) for slot in (0, 1)]))
    assert errors(instance.run_step(turn_plan([values(2, 7.0, start=True)]))) == [
        "values has no page left: all 8 are in use"
    ]
    result = instance.run_step(turn_plan([values(2, 7.0, start=True)], vacated=[0, 3]))
    assert medians(result) == [(7.0, 1)]
    assert medians(instance.run_step(turn_plan([values(1)]))) == [(1.0, 16)]


def test_a_sequence_that_starts_on_a_slot_as_it_is_vacated_keeps_what_it_sends() -> None:
    instance = history(slots=2, page_values=4, max_values=16)
    instance.run_step(turn_plan([values(0, 1.0, start=True)]))
    instance.run_step(turn_plan([values(0, 9.0, 7.0, start=True)], vacated=[0]))
    assert medians(instance.run_step(turn_plan([values(0, 8.0)]))) == [(8.0, 3)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 4), st.lists(st.integers(-9, 9), max_size=5)),
            max_size=5,
            unique_by=lambda row: row[0],
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_sequences_in_any_company_hear_what_they_would_alone(
    steps: list[list[tuple[int, list[int]]]], is_direct: bool
) -> None:
    """Sequences start, go on and start again on their slots; after each turn the whole past is right."""
    instance = history(slots=5, page_values=4, max_values=64, share=1.0)
    past: dict[int, list[int]] = {}
    for number, rows in enumerate(steps):
        turns = []
        for slot, new in sorted(rows):
            is_start = slot not in past or (number + slot) % 4 == 0
            past[slot] = [*([] if is_start else past[slot]), *new]
            turns.append(values(slot, *new, start=is_start))
        if not turns:
            continue
        told = medians(instance.run_step(turn_plan(turns, is_direct=is_direct)))
        for turn, (median, count) in zip(turns, told, strict=True):
            own = sorted(past[turn.slot])
            assert count == len(own)
            assert np.isnan(median) if not own else median == own[(len(own) - 1) // 2]


def test_requests_of_several_rows_and_lengths_share_a_batch_and_get_their_own_rows_back() -> None:
    instance = TensorInstance(MeanModel(), "cpu")
    three = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32)
    result = instance.run_batch(request_batch({"INPUT": floats(1, 2, 6)}, {"INPUT": three}, {"INPUT": floats(8)}))
    assert answers(result) == [{"MEAN": [[3.0]]}, {"MEAN": [[1.5], [3.5], [5.5]]}, {"MEAN": [[8.0]]}]
    assert isinstance(result, BatchResult)
    assert result.counters == {"requests": 3, "rows": 5}


def test_an_answer_of_nan_is_an_answer() -> None:
    (told,) = answers(TensorInstance(MeanModel(), "cpu").run_batch(request_batch({"INPUT": floats()})))
    assert np.isnan(told["MEAN"][0][0])


def test_ragged_answers_are_cut_to_their_requests_and_texts_come_back() -> None:
    instance = TensorInstance(EchoModel(), "cpu")
    requests = [{"NUMBERS": floats(1, 2, 3), "TEXT": texts("größe")}, {"NUMBERS": floats(), "TEXT": texts("")}]
    assert answers(instance.run_batch(request_batch(*requests))) == [
        {"NUMBERS": [[1.0, 2.0, 3.0]], "TEXT": [["größe".encode()]]},
        {"NUMBERS": [[]], "TEXT": [[b""]]},
    ]


def test_a_request_that_the_model_does_not_take_fails_alone() -> None:
    instance = TensorInstance(EchoModel(), "cpu")
    wrong = np.array([["no bytes"]], dtype=object)
    good = {"NUMBERS": floats(1), "TEXT": texts("x")}
    result = instance.run_batch(request_batch({"NUMBERS": floats(1), "TEXT": wrong}, good, {"NUMBERS": floats(1)}))
    assert errors(result) == ["input TEXT must be texts", None, "input TEXT is missing"]


class Answering:
    """Answers whatever it is told to."""

    spec = ModelSpec(
        name="answering",
        scheduler=None,
        state={"kept": StateTensor(shape=(1,), dtype=torch.float32)},
        inputs={"X": TensorSpec(datatype="FP32", shape=(1,))},
        outputs={"Y": TensorSpec(datatype="FP32", shape=(1,))},
    )

    def __init__(self, answer: Callable[[TensorBatch, State], Mapping[str, Tensor | NDArray[Any]]]) -> None:
        self._answer = answer

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor | NDArray[Any]]:
        return self._answer(batch, state)

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor | NDArray[Any]]:
        return self._answer(batch, {})


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({}, "the model answered other outputs than it declares"),
        ({"Y": torch.zeros(2, 1), "Z": torch.zeros(2, 1)}, "the model answered other outputs than it declares"),
        ({"Y": torch.zeros(1, 1)}, "output Y of the model has shape [1, 1], it must be [2, 1]"),
        ({"Y": torch.zeros(2, 3)}, "output Y of the model has shape [2, 3], it must be [2, 1]"),
        ({"Y": torch.zeros(2, 1, dtype=torch.float64)}, "output Y of the model is FP64, it must be FP32"),
    ],
)
def test_a_model_that_answers_what_it_does_not_declare_fails_the_step(outputs: dict[str, Tensor], words: str) -> None:
    model = Answering(lambda batch, state: outputs)
    turns = [TurnRow(slot=slot, arrays={"X": floats(1)}, start=True) for slot in (0, 1)]
    step = TensorStreamingInstance(model, 2, "cpu").run_step(turn_plan(turns))
    batch = TensorInstance(model, "cpu").run_batch(request_batch({"X": floats(1)}, {"X": floats(2)}))
    assert step == BatchFailure(plan_id=5, error=words)
    assert batch == BatchFailure(plan_id=9, error=words)


def test_a_failing_model_is_a_failure_without_internals() -> None:
    def fail(batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        raise RuntimeError("CUDA error: internals")

    turn = TurnRow(slot=0, arrays={"X": floats(1)}, start=True)
    step = TensorStreamingInstance(Answering(fail), 1, "cpu").run_step(turn_plan([turn]))
    batch = TensorInstance(Answering(fail), "cpu").run_batch(request_batch({"X": floats(1)}))
    assert step == BatchFailure(plan_id=5, error="RuntimeError", instance_lost=True)
    assert batch == BatchFailure(plan_id=9, error="RuntimeError", instance_lost=True)


@STRATEGIES
def test_an_answer_is_a_copy_that_the_next_step_does_not_change(is_direct: bool) -> None:
    def show(batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        state["kept"] += torch.as_tensor(batch.inputs["X"]).sum()
        return {"Y": state["kept"]}

    instance = TensorStreamingInstance(Answering(show), 2, "cpu")
    turns = [TurnRow(slot=slot, arrays={"X": floats(1)}) for slot in (0, 1)]
    first = instance.run_step(turn_plan(turns, is_direct=is_direct))
    before = answers(first)
    instance.run_step(turn_plan(turns, is_direct=is_direct))
    assert answers(first) == before


@pytest.mark.parametrize(
    "datatype", ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT64", "FP16", "FP64"]
)
def test_every_type_goes_in_and_out_as_it_is(datatype: str) -> None:
    model = Answering(lambda batch, state: {"Y": batch.inputs["X"]})
    kind = {"X": TensorSpec(datatype=datatype, shape=(1,))}
    model.spec = replace(model.spec, inputs=kind, outputs={"Y": kind["X"]})
    (array,) = nothing_for(model.spec, 2).arrays.values()
    array[1] = 1
    (told,) = answers(TensorInstance(model, "cpu").run_batch(request_batch({"X": array})))
    assert told == {"Y": array.tolist()}


def test_warm_up_runs_every_size_and_leaves_every_slot_as_new() -> None:
    class Watching(HistoryModel):
        def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
            seen.append((len(batch.ready), bool(batch.start.all()), bool(batch.end.all())))
            return super().step_tensors(batch, state)

    seen: list[tuple[int, bool, bool]] = []
    instance = TensorStreamingInstance(Watching(HistorySettings()), 5, "cpu")
    instance.warm_up((1, 2, 5))
    assert seen == [(size, is_first, not is_first) for size in (1, 2, 5) for is_first in (True, False)]
    assert all(instance.store.is_clean(slot) for slot in range(5))
    assert instance.store.cache_bytes_used == 0


def test_a_model_that_fails_at_warm_up_is_not_taken_into_service() -> None:
    model = Answering(lambda batch, state: {})
    with pytest.raises(RuntimeError, match="warm-up"):
        TensorStreamingInstance(model, 1, "cpu").warm_up((1,))
    with pytest.raises(Exception, match="other outputs"):
        TensorInstance(model, "cpu").warm_up((1,))


def test_what_cannot_be_padded_or_cut_is_refused_by_name() -> None:
    ragged, fixed = TensorSpec(datatype="FP32", shape=(-1,), ragged=True), TensorSpec(datatype="FP32", shape=(3,))
    check_ragged(replace(Answering.spec, inputs={"X": ragged, "W": fixed}, outputs={"Y": ragged}))
    for inputs, outputs, words in (
        ({"X": replace(fixed, ragged=True)}, {"Y": fixed}, "X is ragged"),
        ({"X": ragged, "W": ragged}, {"Y": ragged}, "it has 2"),
        ({"X": fixed}, {"Y": ragged}, "it has 0"),
    ):
        with pytest.raises(ValueError, match=words):
            check_ragged(replace(Answering.spec, inputs=inputs, outputs=outputs))


def test_a_stateful_model_under_the_dynamic_batcher_answers_every_row_as_if_nothing_came_before() -> None:
    instance = accumulator(slots=8)
    two = np.array([[20], [30]], dtype=np.int32)
    for _ in range(2):
        result = run_lone_turns(instance, request_batch({"INPUT": ints(10)}, {"INPUT": two}))
        assert answers(result) == [{"OUTPUT": [[10]]}, {"OUTPUT": [[20], [30]]}]
    assert isinstance(run_lone_turns(accumulator(slots=1), request_batch({"INPUT": two})), BatchFailure)
    result = run_lone_turns(instance, request_batch({"INPUT": ints(10)}, {"INPUT": floats(1)}))
    assert errors(result) == [None, "input INPUT is FP32, it must be INT32"]


def test_a_stateless_model_under_the_sequence_batcher_answers_its_turns() -> None:
    plan = turn_plan([TurnRow(slot=2, arrays={"INPUT": floats(1, 3)}, start=True)], scrub=[1])
    result = TensorInstance(MeanModel(), "cpu").run_step(plan)
    assert answers(result) == [{"MEAN": [[2.0]]}]
    assert isinstance(result, BatchResult)
    assert result.scrubbed == (1,)
