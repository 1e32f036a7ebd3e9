"""Where ticks ran, and what they found there."""

from clients.demo.tick_story import Found, findings, n_wrong, passages
from tests.clients.demo.made import ticks


def test_one_instance_goes_on() -> None:
    found = findings(ticks("0000"))
    assert [each.found for each in found] == [Found.START, Found.FOLLOWS, Found.FOLLOWS, Found.FOLLOWS]
    assert n_wrong(ticks("0000")) == 0


def test_another_instance_has_heard_nothing_or_too_little() -> None:
    found = findings(ticks("0011010"))
    assert [each.found.value for each in found] == ["start", "follows", "fresh", "follows", "stale", "stale", "stale"]
    assert [each.heard_until for each in found] == [0, 1, 0, 3, 2, 4, 5]
    assert n_wrong(ticks("0011010")) == 4


def test_passages_explain_each_move() -> None:
    pieces = passages(ticks("00112010"))
    assert [(piece.ticks, piece.instance) for piece in pieces] == [
        ("1–2", 0),
        ("3–4", 1),
        ("5", 2),
        ("6", 0),
        ("7", 1),
        ("end", 0),
    ]
    assert [piece.explanation for piece in pieces] == [
        "the sequence starts here",
        "reset: this instance never heard ticks 1–2, it starts from nothing",
        "reset: this instance never heard ticks 1–4, it starts from nothing",
        "stale: this instance last heard tick 2, ticks 3–5 went elsewhere",
        "stale: this instance last heard tick 4, ticks 5–6 went elsewhere",
        "stale: this instance last heard tick 6, tick 7 went elsewhere",
    ]


def test_one_tick_is_no_span() -> None:
    assert passages(ticks("010"))[1].explanation == ("reset: this instance never heard tick 1, it starts from nothing")


def test_the_end_belongs_to_the_passage_that_it_follows() -> None:
    assert [piece.ticks for piece in passages(ticks("000"))] == ["1–2, end"]
    assert [piece.ticks for piece in passages(ticks("0"))] == ["end"]
    assert passages(()) == []
