"""Resampling: the same bits whatever the chunks, nothing lost, and speech frequencies untouched."""

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from server.codec.resampler import MODEL_RATE, Resampler
from server.plan import Samples

RATES = [8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 47_999, 48_000]


def noise(rate: int, seconds: float = 1.0) -> Samples:
    return np.random.default_rng(rate).uniform(-1, 1, round(rate * seconds)).astype(np.float32)


def in_chunks(rate: int, samples: Samples, sizes: list[int]) -> tuple[Samples, list[int]]:
    """The output, and how many samples had come out after each chunk."""
    resampler, position = Resampler(rate), 0
    parts: list[Samples] = []
    out: list[int] = []
    while position < len(samples):
        size = sizes[len(out) % len(sizes)]
        parts.append(resampler.process(samples[position : position + size]))
        out.append(sum(len(part) for part in parts[-1:]) + (out[-1] if out else 0))
        position += size
    parts.append(resampler.finish())
    return np.concatenate(parts), out


class TestChunking:
    @pytest.mark.parametrize("rate", RATES)
    @pytest.mark.parametrize("size", [1, 7, 160, 4801])
    def test_any_chunk_size_gives_the_same_bits(self, rate: int, size: int) -> None:
        samples = noise(rate, 0.5)
        whole, _ = in_chunks(rate, samples, [len(samples)])
        chunked, _ = in_chunks(rate, samples, [size])
        np.testing.assert_array_equal(chunked, whole)

    @given(st.sampled_from(RATES), st.lists(st.integers(1, 3000), min_size=1, max_size=8))
    @settings(deadline=None, max_examples=30)
    def test_mixed_chunks_give_the_same_bits(self, rate: int, sizes: list[int]) -> None:
        samples = noise(rate, 0.4)
        whole, _ = in_chunks(rate, samples, [len(samples)])
        np.testing.assert_array_equal(in_chunks(rate, samples, sizes)[0], whole)

    @pytest.mark.parametrize("rate", RATES)
    def test_what_has_come_out_depends_only_on_what_went_in(self, rate: int) -> None:
        """A Finalize after n samples finds the same audio however they were cut (I7)."""
        samples = noise(rate, 0.5)
        _, one_by_one = in_chunks(rate, samples, [1])
        for size in (7, 160, 1000):
            _, counts = in_chunks(rate, samples, [size])
            ends = [min(size * (index + 1), len(samples)) for index in range(len(counts))]
            assert counts == [one_by_one[end - 1] for end in ends]


class TestSignal:
    def test_pass_through_at_the_model_rate(self) -> None:
        samples = noise(MODEL_RATE)
        resampler = Resampler(MODEL_RATE)
        np.testing.assert_array_equal(resampler.process(samples), samples)
        assert len(resampler.finish()) == 0

    @pytest.mark.parametrize("rate", [rate for rate in RATES if rate > MODEL_RATE])
    def test_equals_one_shot_resampling(self, rate: int) -> None:
        samples = noise(rate)
        expected = soxr.resample(samples, rate, MODEL_RATE, quality="HQ")
        np.testing.assert_array_equal(in_chunks(rate, samples, [441])[0], expected)

    @pytest.mark.parametrize("rate", RATES)
    def test_length(self, rate: int) -> None:
        samples = noise(rate, 2.0)
        assert len(in_chunks(rate, samples, [500])[0]) == pytest.approx(len(samples) * MODEL_RATE / rate, abs=1)

    @pytest.mark.parametrize("rate", RATES)
    @pytest.mark.parametrize("frequency", [100.0, 1000.0, 3400.0])
    def test_a_tone_stays_itself(self, rate: int, frequency: float) -> None:
        tone = np.sin(2 * np.pi * frequency * np.arange(2 * rate) / rate).astype(np.float32)
        output = in_chunks(rate, tone, [333])[0][8000:24_000]
        spectrum = np.abs(np.fft.rfft(output * np.hanning(len(output)))) / (len(output) / 4)
        peak = int(np.argmax(spectrum))
        assert peak == round(frequency)
        assert spectrum[peak] == pytest.approx(1.0, abs=0.002)
        spectrum[peak - 3 : peak + 4] = 0
        assert spectrum.max() < 1e-4

    @pytest.mark.parametrize(("rate", "limit_ms"), [(8_000, 31), (16_000, 0), (24_000, 40), (44_100, 45), (48_000, 40)])
    def test_little_is_held_back(self, rate: int, limit_ms: float) -> None:
        samples = noise(rate)
        _, counts = in_chunks(rate, samples, [1])
        held_ms = [1000 * ((n + 1) / rate - out / MODEL_RATE) for n, out in enumerate(counts)]
        assert max(held_ms) <= limit_ms + 0.1
