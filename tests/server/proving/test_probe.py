"""The probe finds out what each model is, whatever it says; nothing that is wrong with one goes unseen."""

import re

import pytest
import torch

from asr_model.contract import Model
from asr_model.registry import build_model
from server.proving.evidence import Conclusion, Proof, Question
from server.proving.judgement import Probe
from server.proving.probe import probe
from tests.server.proving import wrong_models as wrong
from tests.support.accumulator_model import AccumulatorModel, SumModel

SHORT, THOROUGH = Probe(), Probe(is_thorough=True)
DEPTHS = pytest.mark.parametrize("order", [SHORT, THOROUGH], ids=["short", "thorough"])


def proved(model: Model, order: Probe = SHORT) -> Proof:
    proof = probe(model, "cpu", order).proof
    assert proof is not None
    return proof


def unmet(proof: Proof) -> set[Question]:
    """The questions that came out otherwise than they should of a stateful model."""
    return {each.question for each in proof.observations if not each.holds}


class TestRightModels:
    @DEPTHS
    @pytest.mark.parametrize("name", ["light-lstm"])
    def test_a_stateful_model(self, name: str, order: Probe) -> None:
        proof = proved(build_model(name, {}, torch.device("cpu")), order)
        assert (proof.conclusion, proof.scheduler) == (Conclusion.STATEFUL, "sequence")
        assert unmet(proof) == set()

    @DEPTHS
    def test_an_accumulator(self, order: Probe) -> None:
        proof = proved(AccumulatorModel(), order)
        assert proof.conclusion is Conclusion.STATEFUL
        # a tick is 64 samples, and that is all that a slot has heard which never had those before
        assert re.search(r"“64:-?\d+” where those had never been$", proof.evidence[0]), proof.evidence

    @DEPTHS
    def test_a_one_shot_model(self, order: Probe) -> None:
        proof = proved(SumModel(), order)
        assert (proof.conclusion, proof.scheduler) == (Conclusion.STATELESS, "dynamic")
        assert unmet(proof) == {Question.MEMORY}

    def test_the_live_model(self) -> None:
        proof = proved(build_model("moonshine-live", {}, torch.device("cpu")))
        assert proof.conclusion is Conclusion.STATEFUL
        assert unmet(proof) == set()
        (sentence,) = proof.evidence
        assert re.fullmatch(
            r"tick \d of a sequence was answered “We pack .*” after the ticks before it, .+ where those had never been",
            sentence,
        ), sentence

    def test_the_final_model(self) -> None:
        proof = proved(build_model("moonshine-base", {}, torch.device("cpu")))
        assert proof.conclusion is Conclusion.STATELESS
        assert unmet(proof) == {Question.MEMORY}
        assert all("whatever was asked before" in each or "both times" in each for each in proof.evidence)


class TestWrongModels:
    @DEPTHS
    @pytest.mark.parametrize(
        ("model", "questions", "words"),
        [
            (wrong.OwnMemory, {Question.PLACE}, "something is remembered outside of the slots"),
            (wrong.NeverForgets, {Question.RESET, Question.PLACE}, "START does not forget"),
            (wrong.WritesBeside, {Question.BYSTANDER}, "changed the state of a slot that was not its own"),
            (wrong.HearsTheOthers, {Question.COMPANY}, "rows touch each other"),
            (wrong.TakesRowsForSlots, {Question.COMPANY}, "rows touch each other"),
        ],
    )
    def test_a_stateful_model_that_is_right_under_no_scheduler(
        self, model: type[AccumulatorModel], questions: set[Question], words: str, order: Probe
    ) -> None:
        proof = proved(model(), order)
        assert (proof.conclusion, proof.scheduler) == (Conclusion.LEAKY, None)
        assert questions <= unmet(proof)
        assert any(words in sentence for sentence in proof.evidence), proof.evidence

    @DEPTHS
    def test_one_that_has_slots_and_forgets(self, order: Probe) -> None:
        proof = proved(wrong.Forgetful(), order)
        assert proof.conclusion is Conclusion.STATELESS
        assert "are answered alike with and without those before" in proof.evidence[0]

    @DEPTHS
    def test_one_that_says_it_is_stateless(self, order: Probe) -> None:
        assert proved(wrong.SaysItIsStateless(), order).scheduler == "sequence"

    @DEPTHS
    def test_a_one_shot_model_that_remembers(self, order: Probe) -> None:
        proof = proved(wrong.Remembers(), order)
        assert proof.conclusion is Conclusion.STATEFUL
        assert any("after something else" in sentence for sentence in proof.evidence)

    @DEPTHS
    def test_a_one_shot_model_whose_rows_touch(self, order: Probe) -> None:
        proof = proved(wrong.PadsBadly(), order)
        assert proof.conclusion is Conclusion.LEAKY
        assert any("rows touch each other" in sentence for sentence in proof.evidence)

    def test_one_that_says_nothing_is_not_decided(self) -> None:
        proof = proved(wrong.Mute())
        assert (proof.conclusion, proof.scheduler) == (Conclusion.UNDECIDED, None)
        assert proof.evidence == ("everything is answered nothing, so that nothing can be told",)

    def test_one_that_fails_is_not_asked_on(self, caplog: pytest.LogCaptureFixture) -> None:
        answers = probe(wrong.Broken(), "cpu", SHORT).answers
        assert all(answer.is_error for answer in answers)
        proof = proved(wrong.Broken())
        assert proof.conclusion is Conclusion.UNDECIDED
        assert proof.evidence == ("everything it is asked fails: “RuntimeError”",)
        assert len(caplog.records) == 2 * len(answers)


class TestCopies:
    @pytest.mark.parametrize("model", [AccumulatorModel, SumModel])
    def test_the_answers_for_comparison_are_those_of_the_experiments(self, model: type[Model]) -> None:
        whole, brief = probe(model(), "cpu", SHORT), probe(model(), "cpu", Probe(is_whole=False))
        assert brief.proof is None
        assert whole.answers == brief.answers
        assert len(set(whole.answers)) > 1
