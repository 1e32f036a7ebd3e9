"""The same for models that take tensors."""

import numpy as np
import pytest
import torch

from asr_model.contract import Model, ModelSpec, Scheduler
from asr_model.declared import DECLARED
from asr_model.registry import build_model
from asr_model.tensor_check import NUMPY_TYPES, inputs_fault
from asr_model.tensor_spec import TensorSpec
from server.proving.evidence import Conclusion, Question
from server.proving.judgement import Probe
from server.proving.tensor_probe import made_up
from tests.server.proving import wrong_tensor_models as wrong
from tests.server.proving.test_probe import DEPTHS, SHORT, THOROUGH, proved, unmet


class TestOurs:
    @DEPTHS
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            *((name, {}) for name, declared in DECLARED.items() if not declared.listens),
            ("accumulator", {"corrid": True}),
        ],
    )
    def test_each_is_what_it_declares(self, name: str, options: dict[str, object], order: Probe) -> None:
        proof = proved(build_model(name, options, torch.device("cpu")), order)
        assert proof.scheduler == DECLARED[name].scheduler, proof
        assert unmet(proof) == (set() if proof.conclusion is Conclusion.STATEFUL else {Question.MEMORY})


class TestWrongModels:
    @DEPTHS
    @pytest.mark.parametrize(
        ("model", "conclusion", "questions"),
        [
            (wrong.Summing(), Conclusion.STATEFUL, set()),
            (wrong.NeverWrites(), Conclusion.STATELESS, {Question.MEMORY}),
            (wrong.ById(), Conclusion.LEAKY, {Question.PLACE}),
            (wrong.SwapsRows(), Conclusion.LEAKY, {Question.COMPANY}),
            (wrong.Doubling(), Conclusion.STATELESS, {Question.MEMORY}),
            (wrong.Centring(), Conclusion.LEAKY, {Question.COMPANY, Question.MEMORY}),
            (wrong.Counting(), Conclusion.STATEFUL, set()),
            (wrong.Picky(), Conclusion.UNDECIDED, {Question.VARIETY}),
        ],
        ids=lambda value: type(value).__name__ if hasattr(value, "spec") else None,
    )
    def test_each_is_found_out(
        self, model: Model, conclusion: Conclusion, questions: set[Question], order: Probe
    ) -> None:
        proof = proved(model, order)
        assert proof.conclusion is conclusion, proof
        assert questions <= unmet(proof)
        if conclusion is Conclusion.STATEFUL:
            assert unmet(proof) == questions


def test_a_model_that_writes_into_masked_slots_is_found_in_full() -> None:
    assert proved(wrong.WritesMasked(), SHORT).conclusion is Conclusion.STATEFUL, "rows are gathered then"
    proof = proved(wrong.WritesMasked(), THOROUGH)
    assert proof.conclusion is Conclusion.LEAKY
    assert unmet(proof) == {Question.BYSTANDER}


class TestMadeUp:
    def test_whatever_is_declared_is_given_and_optional_inputs_are_left_out(self) -> None:
        inputs = {name: TensorSpec(datatype=name, shape=(-1, 2)) for name in NUMPY_TYPES}
        inputs["MAYBE"] = TensorSpec(datatype="FP32", shape=(1,), optional=True)
        spec = ModelSpec(name="m", scheduler=Scheduler.DYNAMIC, inputs=inputs)
        given = made_up(spec, 0, 0)
        assert inputs_fault(given.arrays, inputs, 1) is None
        assert "MAYBE" not in given.arrays

    def test_it_is_the_same_each_time_and_another_for_each_piece(self) -> None:
        spec = wrong.Doubling().spec
        values = [made_up(spec, voice, piece).arrays["INPUT"] for voice in (0, 1) for piece in range(9)]
        again = [made_up(spec, voice, piece).arrays["INPUT"] for voice in (0, 1) for piece in range(9)]
        assert all(np.array_equal(one, other) for one, other in zip(values, again, strict=True))
        assert len({value.tobytes() for value in values}) == len(values)

    def test_ragged_inputs_differ_in_length(self) -> None:
        spec = build_model("mean", {}, torch.device("cpu")).spec
        (name,) = [name for name, declared in spec.inputs.items() if declared.ragged]
        assert len({made_up(spec, 0, piece).arrays[name].shape for piece in range(3)}) == 3
