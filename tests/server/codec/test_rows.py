"""Channels to rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.codec.rows import BLOCK_SAMPLES, Rows, open_rows
from server.errors import BadAudio
from server.plan import Samples
from tests.server.codec.feeding import at_model_rate


def through(rows: Rows, samples: Samples, sizes: list[int]) -> Samples:
    blocks, start, turn = [], 0, 0
    while start < samples.shape[1]:
        size = sizes[turn % len(sizes)]
        blocks += list(rows.process(samples[:, start : start + size]))
        start, turn = start + size, turn + 1
    blocks += list(rows.finish())
    assert all(1 <= block.shape[1] <= BLOCK_SAMPLES and block.dtype == np.float32 for block in blocks)
    return np.concatenate(blocks, axis=1)


def noise(channels: int, n_samples: int, peak: float = 1.0) -> Samples:
    return np.random.default_rng(channels).uniform(-peak, peak, (channels, n_samples)).astype(np.float32)


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 192_000])
@pytest.mark.parametrize("mixdown", [True, False])
@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=5), channels=st.integers(1, 8))
def test_any_cuts_give_the_same_bits(rate: int, mixdown: bool, sizes: list[int], channels: int) -> None:
    samples = noise(channels, 3000)
    whole = through(Rows(rate, channels, mixdown=mixdown), samples, [3000])
    assert len(whole) == (1 if mixdown else channels)
    np.testing.assert_array_equal(through(Rows(rate, channels, mixdown=mixdown), samples, sizes), whole)


def test_each_channel_is_converted_as_though_alone() -> None:
    samples = noise(3, 40_000)
    rows = through(Rows(44_100, 3, mixdown=False), samples, [977])
    for channel in range(3):
        alone = through(Rows(44_100, 1, mixdown=True), samples[channel : channel + 1], [4096])
        np.testing.assert_array_equal(rows[channel], alone[0])


def test_the_mean_is_of_all_channels() -> None:
    samples = noise(4, 1000)
    np.testing.assert_allclose(
        through(Rows(16_000, 4, mixdown=True), samples, [100])[0], samples.mean(axis=0), atol=1e-6
    )


def test_what_is_too_loud_is_clipped() -> None:
    samples = noise(1, 1000, peak=3.0)
    np.testing.assert_array_equal(through(Rows(16_000, 1, mixdown=True), samples, [100]), np.clip(samples, -1, 1))


def test_a_second_is_cut_into_blocks() -> None:
    samples = noise(2, 48_000)
    blocks = list(Rows(48_000, 2, mixdown=False).process(samples))
    assert [block.shape[1] for block in blocks[:-1]] == [BLOCK_SAMPLES] * (len(blocks) - 1)
    assert at_model_rate(samples, 48_000, mixdown=False).shape == (2, 16_000)


@pytest.mark.parametrize(
    ("rate", "channels", "message"),
    [
        (3999, 1, "3999 samples a second, allowed: 4000 to 192000"),
        (192_001, 1, "192001 samples a second"),
        (16_000, 9, "9 channels, allowed: 1 to 8"),
        (16_000, 0, "0 channels, allowed: 1 to 8"),
        (16_000, 2, "2 channels, but multichannel audio with channels=1 is declared"),
    ],
)
def test_what_is_not_taken(rate: int, channels: int, message: str) -> None:
    with pytest.raises(BadAudio, match=message):
        open_rows(rate, channels, mixdown=False, declared=1)


def test_channels_that_are_mixed_need_not_be_declared() -> None:
    assert len(through(open_rows(16_000, 5, mixdown=True, declared=1), noise(5, 100), [10])) == 1
