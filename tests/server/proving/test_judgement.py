"""From the answers of all copies to a verdict."""

import pytest

from server.proving.evidence import EXACT, Answer, Claim, Conclusion, Observation, Question, Tolerance, conclude
from server.proving.judgement import Copy, Probed, judge

STATEFUL = Claim(role="live", model="m", declared="sequence", configured="")


def observed(*, memory: bool = True, company: bool = True, variety: bool = True) -> tuple[Observation, ...]:
    held = {Question.COMPANY: company, Question.MEMORY: memory, Question.VARIETY: variety}
    return tuple(Observation(question=q, holds=holds, sentence=f"{q.value} {holds}") for q, holds in held.items())


def probed(said: str = "a b c", tolerance: Tolerance = EXACT, **held: bool) -> Probed:
    answers = (Answer(said="first"), Answer(said=said))
    return Probed(proof=conclude(observed(**held)), answers=answers, tolerance=tolerance)


def copy(said: str = "a b c", *, is_alike: bool = True) -> Copy:
    answers = (Answer(said="first"), Answer(said=said))
    return Copy(probed=Probed(proof=None, answers=answers, tolerance=EXACT), is_alike=is_alike)


class TestCopies:
    def test_copies_that_agree_leave_the_conclusion(self) -> None:
        judged = judge(STATEFUL, probed(), [copy(), copy()])
        assert (judged.fault, judged.proof.conclusion) == (None, Conclusion.STATEFUL)
        assert sum(each.question is Question.INSTANCE for each in judged.proof.observations) == 2

    @pytest.mark.parametrize("others", [[copy("a b d")], [copy(), copy("a b d")]])
    def test_one_that_differs_is_a_fault_that_nobody_can_allow(self, others: list[Copy]) -> None:
        judged = judge(STATEFUL, probed(), others)
        assert judged.fault is not None
        assert "two copies differ: “a b c” by one, “a b d” by another" in judged.fault
        assert judged.refusal(is_wrong_allowed=True) == judged.refusal(is_wrong_allowed=False) == judged.fault

    def test_on_another_kind_of_device_a_word_may_tip_over(self) -> None:
        assert judge(STATEFUL, probed(), [copy("a b d", is_alike=False)]).fault is None
        assert judge(STATEFUL, probed(), [copy("x y z", is_alike=False)]).fault is not None

    def test_alone_there_is_nothing_to_compare(self) -> None:
        judged = judge(STATEFUL, probed())
        assert judged.fault is None
        assert all(each.question is not Question.INSTANCE for each in judged.proof.observations)


class TestRefusal:
    @pytest.mark.parametrize(("is_allowed", "is_refused"), [(False, True), (True, False)])
    def test_a_wrong_scheduler_may_be_allowed(self, is_allowed: bool, is_refused: bool) -> None:
        claim = Claim(role="live", model="m", declared="sequence", configured="dynamic")
        judged = judge(claim, probed())
        assert judged.fault is not None
        assert (judged.refusal(is_wrong_allowed=is_allowed) is not None) is is_refused

    def test_a_leaky_model_may_not(self) -> None:
        judged = judge(STATEFUL, probed(company=False))
        assert judged.fault is not None
        assert judged.refusal(is_wrong_allowed=True) == judged.fault

    @pytest.mark.parametrize("is_allowed", [False, True])
    def test_the_right_one_is_never_refused(self, is_allowed: bool) -> None:
        assert judge(STATEFUL, probed()).refusal(is_wrong_allowed=is_allowed) is None


class TestUndecided:
    @pytest.mark.parametrize(
        ("declared", "configured", "is_refused"),
        [
            ("sequence", "", False),
            ("sequence", "sequence", False),
            ("", "dynamic", False),
            ("sequence", "dynamic", True),
            ("dynamic", "sequence", True),
        ],
    )
    def test_then_what_the_model_declares_is_believed(self, declared: str, configured: str, is_refused: bool) -> None:
        claim = Claim(role="live", model="m", declared=declared, configured=configured)
        judged = judge(claim, probed(memory=False, variety=False))
        if not is_refused:
            assert judged.fault is None
            return
        assert judged.fault == (
            f"live.scheduler: the configuration says {configured}, m declares {declared}, and it cannot be told which"
            " is right: variety False"
        )
        assert judged.refusal(is_wrong_allowed=False) == judged.fault
        assert judged.refusal(is_wrong_allowed=True) is None
