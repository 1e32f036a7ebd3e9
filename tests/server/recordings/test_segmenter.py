"""Recordings are cut in pauses: nothing is lost, no piece is too long, and blocks leave no trace."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.plan import Samples
from server.recordings.segmenter import FRAME_SAMPLES, LONGEST_FRAMES, SAMPLE_RATE, Segment, Segmenter

LONGEST_SAMPLES = LONGEST_FRAMES * FRAME_SAMPLES


def noise(seconds: float, level: float, seed: int = 0) -> Samples:
    samples = np.random.default_rng(seed).standard_normal(round(seconds * SAMPLE_RATE))
    return np.asarray(level * samples, dtype=np.float32)


def speech_and_pauses(*seconds: float, hiss: float = 1e-4) -> Samples:
    """Loud and quiet in turn."""
    parts = [noise(each, 0.1 if index % 2 == 0 else hiss, index) for index, each in enumerate(seconds)]
    return np.concatenate(parts)


def cut(audio: Samples, block_samples: int = SAMPLE_RATE) -> list[Segment]:
    segmenter = Segmenter()
    found: list[Segment] = []
    for start in range(0, audio.size, block_samples):
        found += segmenter.push(audio[start : start + block_samples])
    return found + segmenter.finish()


def lengths_s(segments: list[Segment]) -> list[float]:
    return [segment.samples.size / SAMPLE_RATE for segment in segments]


def test_a_short_recording_is_one_piece() -> None:
    audio = speech_and_pauses(2.0, 1.0, 2.0)

    (segment,) = cut(audio)

    assert np.array_equal(segment.samples, audio)
    assert segment.start_s == 0.0


def test_nothing_is_no_piece() -> None:
    assert cut(np.empty(0, dtype=np.float32)) == []


@pytest.mark.parametrize("hiss", [0.0, 1e-4, 1e-2])
def test_it_is_cut_in_the_first_pause_after_the_shortest_length(hiss: float) -> None:
    segments = cut(speech_and_pauses(3.0, 1.0, 5.0, 1.2, 4.0, hiss=hiss))

    assert lengths_s(segments) == pytest.approx([9.4, 4.8], abs=0.15)
    assert [segment.start_s for segment in segments] == pytest.approx([0.0, 9.4], abs=0.15)


def test_a_short_gap_is_no_pause_but_better_than_the_middle_of_speech() -> None:
    segments = cut(speech_and_pauses(14.0, 0.4, 20.0))

    assert lengths_s(segments) == pytest.approx([14.2, 20.2], abs=0.1)


def test_without_any_pause_it_is_cut_where_it_is_quietest() -> None:
    audio = noise(30.0, 0.1)
    dip = slice(17 * SAMPLE_RATE, 17 * SAMPLE_RATE + SAMPLE_RATE // 5)
    audio[dip] *= 0.5

    segments = cut(audio)

    assert lengths_s(segments)[0] == pytest.approx(17.1, abs=0.1)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0.05, 9.0), st.sampled_from((0.0, 1e-4, 0.02, 0.3))), min_size=1, max_size=12),
    st.integers(1, 50_000),
)
def test_pieces_tile_the_recording_whatever_its_blocks(parts: list[tuple[float, float]], block_samples: int) -> None:
    audio = np.concatenate([noise(seconds, level, index) for index, (seconds, level) in enumerate(parts)])
    block_samples = max(block_samples, audio.size // 200)

    segments = cut(audio, block_samples)

    assert np.array_equal(np.concatenate([segment.samples for segment in segments]), audio)
    starts = np.cumsum([0, *(segment.samples.size for segment in segments)])[:-1]
    assert [segment.first_sample for segment in segments] == starts.tolist()
    assert all(0 < segment.samples.size <= LONGEST_SAMPLES + FRAME_SAMPLES for segment in segments)
    whole = cut(audio, audio.size)
    assert [segment.first_sample for segment in segments] == [segment.first_sample for segment in whole]
