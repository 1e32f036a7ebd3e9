"""Same, a tie, or a mismatch: asked of every way in which two texts can differ."""

import pytest

from asr_model.transcript import Word
from server.audit.comparison import Outcome, compare
from tests.server.audit.rows import word, words

LIMIT = 0.01
SURE, CLOSE = 1.0, 0.001


class TestSame:
    @pytest.mark.parametrize("text", ["", "one", "one two three"])
    def test_equal_texts(self, text: str) -> None:
        verdict = compare(words(text), words(text), LIMIT)
        assert (verdict.outcome, verdict.at) == (Outcome.SAME, None)

    def test_times_and_margins_are_not_compared(self) -> None:
        assert compare((word("a", 1.0, 0.0),), (word("a", None, 5.0),), LIMIT).outcome is Outcome.SAME


class TestMismatch:
    @pytest.mark.parametrize(
        ("told", "alone", "at"),
        [
            ("one two three", "one two four", 2),
            ("one two three", "one two", 2),
            ("one", "one two three", 1),
            ("", "one", 0),
            ("one two", "", 0),
            ("One two", "one two", 0),
            ("one two", "one, two", 0),
        ],
    )
    def test_the_first_word_that_differs(self, told: str, alone: str, at: int) -> None:
        verdict = compare(words(told), words(alone), LIMIT)
        assert (verdict.outcome, verdict.at) == (Outcome.MISMATCH, at)

    def test_a_tie_later_or_earlier_excuses_nothing(self) -> None:
        told = (word("a", CLOSE), word("b", SURE), word("c", SURE), word("d", CLOSE))
        alone = (word("a", CLOSE), word("x", SURE), word("c", SURE), word("d", CLOSE))
        assert compare(told, alone, LIMIT).outcome is Outcome.MISMATCH

    def test_a_tie_on_one_side_alone_is_none(self) -> None:
        assert compare((word("a", CLOSE),), (word("b", SURE),), LIMIT).outcome is Outcome.MISMATCH
        assert compare((word("a", SURE),), (word("b", CLOSE),), LIMIT).outcome is Outcome.MISMATCH

    def test_what_is_not_known_is_no_tie(self) -> None:
        for told, alone in (((word("a", None),), (word("b", CLOSE),)), ((word("a", None),), (word("b", None),))):
            verdict = compare(told, alone, LIMIT)
            assert (verdict.outcome, verdict.margin) == (Outcome.MISMATCH, None)

    def test_the_limit_itself_is_no_tie(self) -> None:
        assert compare((word("a", LIMIT),), (word("b", LIMIT),), LIMIT).outcome is Outcome.MISMATCH


class TestTie:
    @pytest.mark.parametrize(
        ("told", "alone"),
        [
            ((word("a", CLOSE),), (word("b", CLOSE),)),
            ((word("a", SURE), word("b", CLOSE)), (word("a", SURE), word("c", CLOSE))),
            # one side heard nothing more: the other alone says how close it was
            ((word("a", SURE), word("b", CLOSE)), (word("a", SURE),)),
            ((), (word("b", CLOSE),)),
            # "one" against "one,": the token after the word decides where it ends
            ((word("one", SURE), word("two", CLOSE)), (word("one,", CLOSE), word("two", SURE))),
        ],
    )
    def test_the_tokens_at_the_first_difference_lie_close(
        self, told: tuple[Word, ...], alone: tuple[Word, ...]
    ) -> None:
        verdict = compare(told, alone, LIMIT)
        assert verdict.outcome is Outcome.TIE
        assert verdict.margin == CLOSE

    def test_whatever_follows_it(self) -> None:
        told = (word("a", CLOSE), *words("x y z"))
        alone = (word("b", CLOSE), *words("p q"))
        assert compare(told, alone, LIMIT).outcome is Outcome.TIE

    def test_without_a_margin_for_rounding_there_is_none(self) -> None:
        assert compare((word("a", 0.0),), (word("b", 0.0),), 0.0).outcome is Outcome.MISMATCH
