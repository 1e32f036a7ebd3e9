"""The level meter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.mic.level import FLOOR_DB, Level, LevelMeter, bar


def reading(samples: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> Level:
    """Of a tenth of a second at 8 kHz."""
    level = LevelMeter(8_000).add(samples)
    assert level is not None
    return level


@pytest.mark.parametrize(
    ("magnitude", "rms_db", "is_clipping"),
    [(1.0, 0.0, True), (0.5, -6.02, False), (0.01, -40.0, False), (1e-5, FLOOR_DB, False), (0.0, FLOOR_DB, False)],
)
def test_a_steady_sound(magnitude: float, rms_db: float, is_clipping: bool) -> None:
    samples = np.full(800, magnitude, np.float32)
    samples[::2] *= -1
    level = reading(samples)
    assert level.rms_db == pytest.approx(rms_db, abs=0.01)
    assert level.is_clipping is is_clipping
    assert level.heard_s == pytest.approx(0.1)


@given(st.lists(st.integers(1, 700), min_size=1, max_size=40))
def test_a_reading_comes_every_tenth_of_a_second_whatever_the_blocks(sizes: list[int]) -> None:
    meter = LevelMeter(8_000)
    heard, since = 0, 0
    for size in sizes:
        heard += size
        since += size
        level = meter.add(np.full(size, 0.1, np.float32))
        assert (level is not None) == (since >= 800)
        if level is not None:
            since = 0
            assert level.rms_db == pytest.approx(-20.0, abs=0.01)
            assert level.heard_s == pytest.approx(heard / 8_000)


def test_nothing_but_zeros_is_counted_across_readings() -> None:
    meter = LevelMeter(8_000)
    quiet, faint = np.zeros(4_000, np.float32), np.zeros(4_000, np.float32)
    faint[999] = -1e-9
    assert [level.mute_s for level in map(meter.add, (quiet, quiet, faint, quiet)) if level] == [
        0.5,
        1.0,
        pytest.approx(0.375),
        pytest.approx(0.875),
    ]


@pytest.mark.parametrize(("rms_db", "cells"), [(0.0, "██████"), (-30.0, "███···"), (-60.0, "······")])
def test_the_bar(rms_db: float, cells: str) -> None:
    assert bar(Level(rms_db=rms_db, is_clipping=False, heard_s=0.0, mute_s=0.0), 6) == cells
