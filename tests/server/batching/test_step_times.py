"""Averages of durations, by size."""

from server.batching.step_times import Average, StepTimes


def test_nothing_was_measured() -> None:
    assert Average().value_ns is None
    assert StepTimes().expected_ns(3) is None


def test_the_newest_counts_most() -> None:
    average = Average()
    average.note(100)
    assert average.value_ns == 100
    average.note(200)
    assert average.value_ns == 120
    for _ in range(40):
        average.note(200)
    assert average.value_ns == 200


def test_sizes_that_were_not_measured_lie_between_the_nearest() -> None:
    times = StepTimes()
    times.note(8, 180)
    assert [times.expected_ns(size) for size in (1, 8, 20)] == [180, 180, 180]
    times.note(2, 60)
    times.note(4, 100)
    assert [times.expected_ns(size) for size in (1, 2, 3, 4, 5, 7, 8, 9)] == [60, 60, 80, 100, 120, 160, 180, 180]
    times.note(4, 200)
    assert times.expected_ns(4) == 120
