"""The line about a difference has both texts and the batches."""

from asr_model.transcript import Word
from server.audit.comparison import compare
from server.audit.record import Record
from server.audit.report import MAX_ROWS, concerned, difference_text
from tests.server.audit.rows import S, row, samples, words

SECOND = 16_000


def record(n_rows: int, instances: tuple[int, ...]) -> Record:
    """Rows of a second each, on the instances in turn."""
    made = Record(S, max_samples=100 * SECOND)
    made.send(samples(n_rows * SECOND))
    for number in range(n_rows):
        instance = instances[number % len(instances)]
        made.complete_row(row(number * SECOND, (number + 1) * SECOND, instance=instance, plan_id=number + 10))
    return made


def told_of(told: tuple[Word, ...], alone: tuple[Word, ...], n_rows: int = 3, *, shows_words: bool = True) -> str:
    return difference_text(
        record(n_rows, (0, 1)), record(n_rows, (1,)), compare(told, alone, 0.0), shows_words=shows_words
    )


def test_both_texts_and_the_batches() -> None:
    assert told_of(words("a b c"), words("a x c")) == (
        "sequence s heard “a b c”, alone “a x c”: word 2, near 1.0 s, margin 1;"
        " it ran on instances 0, 1 (2 moves: 0→1 at 1.00 s (plan 11), 1→0 at 2.00 s (plan 12)),"
        " alone on instance 1;"
        " batches there: 0.00 s plan 10 instance 0 slot 2 of 3 rows; 1.00 s plan 11 instance 1 slot 2 of 3 rows;"
        " 2.00 s plan 12 instance 0 slot 2 of 3 rows"
    )


def test_long_texts_are_shown_around_the_difference() -> None:
    before, after = " ".join("abcdefgh"), " ".join("pqrstuvwxyz1234")
    line = told_of(words(f"{before} one {after}"), words(f"{before} two {after}"), n_rows=12)
    assert "heard “… e f g h one p q r s t u v w x y z …”" in line
    assert "word 9, near 8.0 s" in line
    assert "plan 16 " in line
    assert "plan 14 " not in line
    assert "plan 21 " not in line


def test_one_side_may_have_ended() -> None:
    assert "heard “a”, alone “a b”: word 2, near 1.0 s" in told_of(words("a"), words("a b"))
    assert "margin not known" in told_of(words("a", None), words("b", None))


def test_texts_can_be_left_out() -> None:
    line = told_of(words("secret b c"), words("secret"), shows_words=False)
    assert line.startswith(
        "sequence s heard 3 words, alone 1 word: word 2, near 1.0 s, margin 1; it ran on instances 0, 1"
    )
    assert "secret" not in line


def test_moves_are_bounded_and_a_pinned_sequence_has_none() -> None:
    line = told_of(words("a"), words("b"), n_rows=9)
    assert "(8 moves: 0→1 at 1.00 s (plan 11), " in line
    assert "0→1 at 5.00 s (plan 15), 1→0 at 6.00 s (plan 16), …), alone on instance 1;" in line
    pinned = difference_text(record(9, (0,)), record(9, (1,)), compare(words("a"), words("b"), 0.0), shows_words=True)
    assert "; it ran on instance 0, alone on instance 1;" in pinned


def test_rows_are_bounded() -> None:
    made = Record(S, max_samples=100 * SECOND)
    made.send(samples(SECOND))
    for number in range(40):
        made.complete_row(row(0, SECOND, flush=True, plan_id=number))
    assert [each.plan_id for each in concerned(made.rows, 0.5)] == list(range(40 - MAX_ROWS, 40))
