"""The search for held streams, against services that hold a known number."""

from collections.abc import Callable

import pytest

from clients.bench.search import StreamSearch


def run(search: StreamSearch, holds: Callable[[int], bool]) -> list[int]:
    tried = []
    while (streams := search.next()) is not None:
        tried.append(streams)
        search.tell(streams, was_held=holds(streams))
    return tried


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 10, 19, 20, 21, 40, 99, 100])
@pytest.mark.parametrize("guess", [1, 10, 70])
def test_it_finds_every_capacity(capacity: int, guess: int) -> None:
    search = StreamSearch(guess=guess, limit=100, most_trials=100)
    tried = run(search, lambda streams: streams <= capacity)
    assert search.held == capacity
    assert len(tried) == len(set(tried)) <= 30


def test_a_service_that_holds_nothing() -> None:
    search = StreamSearch(guess=20, limit=100, most_trials=100)
    assert run(search, lambda _: False)[-1] == 1
    assert search.held == 0


def test_it_halves_down_to_one_however_few_trials_it_has() -> None:
    search = StreamSearch(guess=85, limit=130, most_trials=4, resolution=3)
    assert run(search, lambda _: False) == [85, 42, 21, 10, 5, 2, 1]
    assert search.held == 0


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 20])
def test_a_guess_far_too_high_still_gives_a_figure(capacity: int) -> None:
    """On a machine that does other work too."""
    search = StreamSearch(guess=85, limit=130, most_trials=4, resolution=3)
    tried = run(search, lambda streams: streams <= capacity)
    assert capacity - 3 < search.held <= capacity
    assert len([streams for streams in tried if streams >= 2 * capacity]) <= 6


def test_it_never_exceeds_the_limit() -> None:
    search = StreamSearch(guess=20, limit=21, most_trials=100)
    assert run(search, lambda _: True) == [20, 21]


def test_it_stops_at_the_resolution_and_after_so_many_trials() -> None:
    rough = StreamSearch(guess=100, limit=1000, most_trials=100, resolution=10)
    run(rough, lambda streams: streams <= 137)
    assert 127 <= rough.held <= 137
    short = StreamSearch(guess=100, limit=1000, most_trials=2)
    assert run(short, lambda streams: streams <= 137) == [100, 120]
    assert short.held == 120


def test_what_fails_is_believed() -> None:
    """A trial below one that was held fails: it counts, and the search goes on below it."""
    search = StreamSearch(guess=10, limit=100, most_trials=10)
    search.tell(10, was_held=True)
    search.tell(8, was_held=False)
    assert search.held < 8
    assert (search.next() or 0) < 8
