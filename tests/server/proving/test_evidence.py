"""What follows from what was seen: pure, so every combination is asked."""

import math

import pytest

from server.proving.evidence import (
    EXACT,
    ROUNDED,
    Answer,
    Claim,
    Conclusion,
    Observation,
    Proof,
    Question,
    Tolerance,
    conclude,
    contradiction,
    copies_differ,
    differs,
    first_difference,
    is_excusable,
)

INDEPENDENT = (Question.RESET, Question.COMPANY, Question.BYSTANDER, Question.PLACE, Question.INSTANCE)


def seen(question: Question, holds: bool = True) -> Observation:
    return Observation(question=question, holds=holds, sentence=f"{question.value} {holds}")


def proof(*, memory: bool, broken: Question | None = None, variety: bool = True) -> Proof:
    independence = [seen(question, question is not broken) for question in INDEPENDENT]
    return conclude([*independence, seen(Question.MEMORY, memory), seen(Question.VARIETY, variety)])


def claim(declared: str = "", configured: str = "") -> Claim:
    return Claim(role="live", model="m", declared=declared, configured=configured)


class TestDiffers:
    @pytest.mark.parametrize(
        ("one", "other", "tolerance", "expected"),
        [
            (Answer(said="a b"), Answer(said="a b"), EXACT, False),
            (Answer(said="a b"), Answer(said="a c"), EXACT, True),
            (Answer(said="a b c d"), Answer(said="a b c e"), ROUNDED, False),
            (Answer(said="a b c d"), Answer(said="a b e f"), ROUNDED, True),
            (Answer(said="a b c d"), Answer(said=""), ROUNDED, True),
            (Answer(said="a b"), Answer(said="a c"), Tolerance(number=0.0, words=0.5), False),
            (Answer(said="", numbers=(0.0,)), Answer(said="", numbers=(0.5,)), Tolerance(number=0.5), False),
            (Answer(said="", numbers=(1.0,)), Answer(said="", numbers=(1.01,)), EXACT, False),
            (Answer(said="", numbers=(1.0,)), Answer(said="", numbers=(1.02,)), EXACT, True),
            (Answer(said="", numbers=(1000.0,)), Answer(said="", numbers=(1009.0,)), EXACT, False),
            (Answer(said="", numbers=(0.001,)), Answer(said="", numbers=(0.009,)), EXACT, False),
            (Answer(said="", numbers=(1.0,)), Answer(said="", numbers=(1.0, 2.0)), EXACT, True),
            (Answer(said="", numbers=(math.nan,)), Answer(said="", numbers=(math.nan,)), EXACT, False),
            (Answer(said="", numbers=(math.nan,)), Answer(said="", numbers=(1.0,)), EXACT, True),
            (Answer(said="", numbers=(math.inf,)), Answer(said="", numbers=(math.inf,)), EXACT, False),
            (Answer(said="", numbers=(math.inf,)), Answer(said="", numbers=(-math.inf,)), EXACT, True),
        ],
    )
    def test_rounding_is_no_difference(self, one: Answer, other: Answer, tolerance: Tolerance, expected: bool) -> None:
        assert differs(one, other, tolerance) is expected
        assert differs(other, one, tolerance) is expected

    def test_the_first_of_several(self) -> None:
        ones, others = [Answer(said=x) for x in "abcd"], [Answer(said=x) for x in "abxy"]
        assert first_difference(ones, others, EXACT) == 2
        assert first_difference(ones, ones, EXACT) is None


class TestConclude:
    @pytest.mark.parametrize("broken", INDEPENDENT)
    @pytest.mark.parametrize("memory", [False, True])
    def test_whatever_depends_on_others_is_leaky(self, broken: Question, memory: bool) -> None:
        found = proof(memory=memory, broken=broken)
        assert (found.conclusion, found.scheduler) == (Conclusion.LEAKY, None)
        assert found.evidence == (f"{broken.value} False",)
        assert not is_excusable(found)

    @pytest.mark.parametrize("variety", [False, True])
    def test_memory_makes_it_stateful(self, variety: bool) -> None:
        found = proof(memory=True, variety=variety)
        assert (found.conclusion, found.scheduler) == (Conclusion.STATEFUL, "sequence")
        assert found.evidence == ("memory True",)
        assert is_excusable(found)

    def test_one_sign_of_memory_is_enough(self) -> None:
        found = conclude([seen(Question.MEMORY, False), seen(Question.MEMORY), seen(Question.VARIETY)])
        assert found.conclusion is Conclusion.STATEFUL

    @pytest.mark.parametrize("question", INDEPENDENT)
    def test_one_sign_of_touching_is_enough(self, question: Question) -> None:
        found = conclude([seen(question), seen(question, False), seen(question), seen(Question.MEMORY)])
        assert found.conclusion is Conclusion.LEAKY

    def test_where_nobody_looked_for_variety_there_is_some(self) -> None:
        assert conclude([seen(Question.MEMORY, False)]).conclusion is Conclusion.STATELESS

    def test_without_memory_it_is_stateless(self) -> None:
        found = proof(memory=False)
        assert (found.conclusion, found.scheduler) == (Conclusion.STATELESS, "dynamic")
        assert found.evidence == ("memory False",)

    def test_nothing_is_said_of_one_that_answers_everything_alike(self) -> None:
        found = proof(memory=False, variety=False)
        assert (found.conclusion, found.scheduler) == (Conclusion.UNDECIDED, None)
        assert found.evidence == ("variety False",)


class TestContradiction:
    @pytest.mark.parametrize(
        ("declared", "configured", "memory", "words"),
        [
            ("sequence", "", True, None),
            ("sequence", "sequence", True, None),
            ("", "sequence", True, None),
            ("dynamic", "sequence", True, None),
            ("dynamic", "", False, None),
            ("", "dynamic", False, None),
            (
                "dynamic",
                "",
                True,
                "live.scheduler: the model declares dynamic, but m is stateful and needs the sequence",
            ),
            (
                "sequence",
                "dynamic",
                True,
                "live.scheduler: the configuration says dynamic (the model declares sequence), but m is stateful"
                " and needs the sequence",
            ),
            ("", "dynamic", True, "live.scheduler: the configuration says dynamic, but m is stateful and needs the"),
            (
                "sequence",
                "",
                False,
                "live.scheduler: the model declares sequence, but m is stateless and needs the dyn",
            ),
            ("", "", True, "live.scheduler: nobody says which, but m is stateful and needs the sequence"),
        ],
    )
    def test_it_names_who_says_what_and_the_evidence(
        self, declared: str, configured: str, memory: bool, words: str | None
    ) -> None:
        told = contradiction(claim(declared, configured), proof(memory=memory))
        if words is None:
            assert told is None
        else:
            assert told is not None
            assert told.startswith(words)
            assert told.endswith(f"batcher: memory {memory}")

    @pytest.mark.parametrize("declared", ["sequence", "dynamic"])
    def test_no_claim_saves_a_leaky_model(self, declared: str) -> None:
        told = contradiction(claim(declared), proof(memory=True, broken=Question.COMPANY))
        assert told == (f"live.model: m is right under no scheduler (the model declares {declared}): company False")

    def test_the_undecided_is_believed(self) -> None:
        assert contradiction(claim("sequence"), proof(memory=False, variety=False)) is None


class TestCopies:
    def test_alike(self) -> None:
        answers = [Answer(said="a"), Answer(said="b", numbers=(1.0,))]
        others = [Answer(said="a"), Answer(said="b", numbers=(1.001,))]
        found = copies_differ(answers, others, EXACT)
        assert (found.question, found.holds) == (Question.INSTANCE, True)

    @pytest.mark.parametrize(
        ("others", "words"),
        [
            ([Answer(said="a"), Answer(said="c")], "two copies differ: “b” by one, “c” by another"),
            ([Answer(said="x")], "two copies differ: “a” by one, “x” by another"),
        ],
    )
    def test_another_copy_that_answers_otherwise(self, others: list[Answer], words: str) -> None:
        found = copies_differ([Answer(said="a"), Answer(said="b")], others, EXACT)
        assert (found.holds, found.sentence) == (False, words)


class TestShown:
    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            (Answer(said="hello"), "“hello”"),
            (Answer(said=""), "nothing"),
            (Answer(said="", numbers=(1.0, 2.5)), "[1, 2.5]"),
            (Answer(said="", numbers=(1.0, 2.0, 3.0, 4.0, 5.0)), "[1, 2, 3, 4, …]"),
            (Answer(said="", numbers=(1.0, 2.0, 3.0, 4.0)), "[1, 2, 3, 4]"),
            (Answer(said="x" * 100), f"“{'x' * 59}…”"),
            (Answer(said="x" * 60), f"“{'x' * 60}”"),
            (Answer(said="word", numbers=(0.5,)), "“word”"),
        ],
    )
    def test_an_answer_is_shown_short(self, answer: Answer, text: str) -> None:
        assert answer.shown() == text
