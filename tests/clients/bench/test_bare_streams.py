"""Step times to real-time streams."""

from dataclasses import replace

import pytest

from clients.bench.bare_streams import BareSetting, bare_streams, step_time
from clients.bench.figures import BareFinals, BarePoint

SETTING = BareSetting(tick_ms=240.0, instances=2, max_batch=64, units=2, final_instances=1)


def points(*pairs: tuple[int, float]) -> list[BarePoint]:
    return [BarePoint(batch=batch, step_ms=step_ms, p99_ms=step_ms) for batch, step_ms in pairs]


@pytest.mark.parametrize(
    ("rows", "expected_ms"), [(0.5, 40.0), (1, 40.0), (3, 80.0), (4, 100.0), (6, 160.0), (8, 220.0), (10, 280.0)]
)
def test_between_and_beyond_points_it_is_a_line(rows: float, expected_ms: float) -> None:
    assert step_time(rows, points((1, 40.0), (2, 60.0), (4, 100.0), (8, 220.0)), 64) == pytest.approx(expected_ms)


def test_above_the_largest_batch_a_tick_takes_several_steps() -> None:
    assert step_time(16, points((1, 10.0), (8, 24.0)), 8) == pytest.approx(48.0)


def test_one_point_is_charged_by_the_row() -> None:
    assert step_time(4, points((1, 40.0)), 64) == pytest.approx(160.0)


def test_streams_fill_the_tick_of_every_instance() -> None:
    assert bare_streams(points((1, 40.0), (2, 60.0)), SETTING) == pytest.approx(2 * 11.0)


def test_not_even_one_stream_is_a_part_of_one() -> None:
    slow = points((1, 480.0))
    assert bare_streams(slow, SETTING) == 0.0


def test_finals_take_the_cores_that_live_steps_leave() -> None:
    """11 ms a row and tick; 0.1 utterances a second of 500 ms each: 12 ms a stream and tick."""
    line = points((1, 11.0), (2, 22.0))
    finals = BareFinals(utterance_ms=500.0, utterances_per_stream_s=0.1)
    alone = bare_streams(line, SETTING)
    assert alone == pytest.approx(2 * 21.8)
    assert bare_streams(line, SETTING, finals) == pytest.approx(240 / 12, abs=0.1), "one final model is full"
    assert bare_streams(line, replace(SETTING, final_instances=2), finals) == pytest.approx(480 / 23, abs=0.1)


def test_threads_count_against_the_cores() -> None:
    line = points((1, 11.0), (2, 22.0))
    finals = BareFinals(utterance_ms=500.0, utterances_per_stream_s=0.1)
    wide = replace(SETTING, units_each=4, units=8, final_instances=2)
    assert bare_streams(line, wide, finals) == pytest.approx(480 / 23, abs=0.1)
    assert bare_streams(line, replace(wide, units=12), finals) == pytest.approx(720 / 23, abs=0.1)
