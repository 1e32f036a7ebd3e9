"""Who waits for a slot: order, levels, ageing, places; and how long a slot is held."""

import pytest

from server.batching.backlog import Backlog, SlotTurnover
from server.ids import SequenceId


def ids(names: str) -> list[SequenceId]:
    return [SequenceId(name) for name in names]


def filled(*arrivals: tuple[str, int], n_levels: int = 3) -> Backlog:
    backlog = Backlog(n_levels)
    for at_ns, (name, priority) in enumerate(arrivals):
        backlog.add(SequenceId(name), priority, at_ns, is_told=True)
    return backlog


def drained(backlog: Backlog) -> str:
    return "".join(backlog.pop()[0] for _ in range(len(backlog)))


def test_nobody_waits() -> None:
    backlog = Backlog(1)
    assert (len(backlog), backlog.order(), backlog.oldest_since_ns, backlog.moved()) == (0, [], None, [])
    assert backlog.place(SequenceId("a")) is None
    assert backlog.remove(SequenceId("a")) is None


def test_first_come_first_placed() -> None:
    backlog = filled(("a", 1), ("b", 1), ("c", 1))
    assert [backlog.place(name) for name in ids("abc")] == [1, 2, 3]
    assert backlog.pop() == ("a", 0)
    assert backlog.place(SequenceId("a")) is None
    assert drained(backlog) == "bc"


@pytest.mark.parametrize(("priority", "order"), [(0, "bac"), (3, "bac"), (9, "bac"), (2, "bca"), (1, "cba")])
def test_levels(priority: int, order: str) -> None:
    """c comes last, with the priority; a is at the last level and b at the second."""
    backlog = filled(("a", 3), ("b", 2), ("c", priority))
    assert backlog.order() == ids(order)
    assert drained(backlog) == order


def test_a_level_is_passed_over_a_few_times_only() -> None:
    backlog = filled(("z", 3), *((f"{index}", 1) for index in range(8)))
    order = "0123z4567"
    assert backlog.order() == ids(order)
    assert drained(backlog) == order


def test_places_are_what_comes_of_them_with_levels_that_age() -> None:
    backlog = filled(*((f"{index}", 1 + index % 3) for index in range(9)), n_levels=3)
    for _ in range(9):
        places = {name: backlog.place(name) for name in backlog.order()}
        name, _ = backlog.pop()
        assert places[name] == 1


def test_an_empty_level_forgets_that_it_was_passed_over() -> None:
    backlog = filled(("z", 2), *((f"{index}", 1) for index in range(3)), n_levels=2)
    for _ in range(3):
        backlog.pop()
    backlog.remove(SequenceId("z"))
    for name, priority in (("y", 2), ("a", 1), ("b", 1)):
        backlog.add(SequenceId(name), priority, 0, is_told=True)
    assert drained(backlog) == "aby"


def test_the_others_are_told_when_they_move() -> None:
    backlog = filled(("a", 1), ("b", 1), ("c", 1))
    assert backlog.moved() == []
    assert backlog.remove(SequenceId("b")) == 1
    assert backlog.moved() == [("c", 2)]
    assert backlog.moved() == []
    backlog.add(SequenceId("d"), 1, 9, is_told=False)
    assert backlog.moved() == [("d", 3)]
    backlog.pop()
    assert backlog.moved() == [("c", 1), ("d", 2)]


def test_who_comes_before_them_moves_them_back() -> None:
    backlog = filled(("a", 2), ("b", 1))
    assert backlog.place(SequenceId("b")) == 1
    assert backlog.moved() == [("a", 2)]


def test_those_that_wait_too_long() -> None:
    backlog = filled(("a", 3), ("b", 1), ("c", 3), ("d", 1))
    assert backlog.oldest_since_ns == 0
    assert backlog.late(-1) == []
    assert backlog.late(2) == ids("abc")
    backlog.remove(SequenceId("a"))
    assert backlog.oldest_since_ns == 1


def test_what_a_slot_is_held_for_tells_when_the_next_is_free() -> None:
    turnover = SlotTurnover()
    assert turnover.expected_wait_ns(1, 4) is None
    turnover.note(1_000)
    assert [turnover.expected_wait_ns(place, 4) for place in (1, 2, 8)] == [250, 500, 2_000]
    assert turnover.expected_wait_ns(1, 0) is None
