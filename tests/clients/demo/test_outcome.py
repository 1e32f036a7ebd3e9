"""Rates, comparisons, and what makes the demonstration hold."""

import pytest

from clients.demo.outcome import CellKey, Outcome, SchedulerName
from clients.demo.utterances import LengthClass
from clients.word_error_rate import WordErrors
from tests.clients.demo.made import RIGHT, WRONG, outcome, played, utterance

DYNAMIC, SEQUENCE = SchedulerName.DYNAMIC, SchedulerName.SEQUENCE


def test_a_cell_adds_up_its_utterances() -> None:
    long = utterance()
    found = Outcome(played={(DYNAMIC, 4): [played(RIGHT, "0001", long), played(WRONG, "01", long)]})
    cell = found.cell(CellKey(scheduler=DYNAMIC, clients=4, length=LengthClass.LONG))
    assert cell.errors == WordErrors(deletions=5, reference_words=20)
    assert (cell.utterances, cell.ticks, cell.wrong_ticks) == (2, 6, 2)
    assert cell.errors.percent == 25.0
    assert found.cell(CellKey(scheduler=SEQUENCE, clients=4, length=LengthClass.LONG)).utterances == 0


def test_what_there_is() -> None:
    found = outcome()
    assert found.loads == [1, 8]
    assert found.lengths == [LengthClass.WORDS, LengthClass.LONG]
    assert found.longest is LengthClass.LONG
    assert found.schedulers == [DYNAMIC, SEQUENCE]
    assert found.alone() == {"short.flac": "Yes.", "long.flac": RIGHT}


def test_it_holds() -> None:
    verdict = outcome().verdict()
    assert verdict.gap_points == 50.0
    assert verdict.holds


@pytest.mark.parametrize("dynamic_text", [RIGHT, "one two three four five six seven eight nine ten eleven"])
def test_a_gap_that_is_too_small(dynamic_text: str) -> None:
    verdict = outcome(dynamic_text=dynamic_text).verdict()
    assert verdict.gap_points in (0.0, pytest.approx(10.0))
    assert verdict.holds == (verdict.gap_points >= 10.0)


def test_one_other_letter_under_the_sequence_batcher() -> None:
    verdict = outcome(sequence_text=RIGHT + ".").verdict()
    assert verdict.gap_points == 50.0
    (difference,) = verdict.differences
    assert (difference.name, difference.clients, difference.alone) == ("long.flac", 8, RIGHT)
    assert not verdict.holds


def test_the_dynamic_text_need_not_be_the_one_alone() -> None:
    assert outcome(dynamic_text="").verdict().differences == ()


def test_a_sequence_that_broke_off() -> None:
    verdict = outcome(failure="the instance died").verdict()
    assert verdict.failures == ("long.flac, dynamic, 8 clients: the instance died",)
    assert not verdict.holds


def test_the_first_sign_and_the_worst_are_looked_at() -> None:
    runs = dict(outcome().played)
    first = played("one two three four five six seven eight nine", "0001")  # one word is gone after one move
    worst = played("nothing", "0101", utterance("worse.flac"))
    right = played(RIGHT, of=utterance("worse.flac"))
    runs[DYNAMIC, 1] = [first]
    runs[DYNAMIC, 8] = [*runs[DYNAMIC, 8], worst]
    runs[SEQUENCE, 8] = [*runs[SEQUENCE, 8], right]
    cases = Outcome(played=runs).cases()
    assert [(case.dynamic, case.sequence.text, case.clients) for case in cases] == [
        (first, RIGHT, 1),
        (worst, RIGHT, 8),
    ]
    assert [case.added_errors for case in cases] == [1, 10]


def test_one_case_may_be_both() -> None:
    found = outcome()
    assert [case.dynamic for case in found.cases()] == [found.played[DYNAMIC, 8][1]]


def test_where_nothing_came_out_worse_there_is_no_case() -> None:
    assert outcome(dynamic_text=RIGHT).cases() == []
