"""Any cut of the kept audio is the sequence's own samples; what is forgotten is not cut."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.engine.utterance_audio import UtteranceAudio


def ramp(first: int, n_samples: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.arange(first, first + n_samples, dtype=np.float32)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), max_size=30), st.data())
def test_cuts_equal_the_whole_recording(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    audio, end, kept_from = UtteranceAudio(100), 0, 0
    for n_samples, keep_from in steps:
        audio.append(ramp(end, n_samples))
        end += n_samples
        audio.trim(keep_from)
        kept_from = max(kept_from, min(keep_from, end), end - 100)
        assert audio.n_samples == end - kept_from
        first = data.draw(st.integers(0, end + 2))
        last = data.draw(st.integers(0, end + 2))
        cut = audio.cut(first, last)
        if kept_from <= first < last <= end:
            assert cut is not None
            np.testing.assert_array_equal(cut, ramp(first, last - first))
        else:
            assert cut is None


def test_it_keeps_copies() -> None:
    audio, chunk = UtteranceAudio(10), ramp(0, 4)
    audio.append(chunk)
    chunk[:] = -1.0
    cut = audio.cut(0, 4)
    assert cut is not None
    cut[:] = -2.0
    np.testing.assert_array_equal(audio.cut(0, 4), ramp(0, 4))
