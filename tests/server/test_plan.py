"""What a client may ask of its sequence."""

import pytest

from server.plan import SequenceOptions


@pytest.mark.parametrize("silence_ms", [None, 0, 10, 10_000])
def test_a_silence_within_its_bounds_is_taken(silence_ms: int | None) -> None:
    assert SequenceOptions(endpoint_silence_ms=silence_ms).endpoint_silence_ms == silence_ms


@pytest.mark.parametrize("silence_ms", [-1, 1, 9, 10_001])
def test_a_silence_outside_of_them_is_refused(silence_ms: int) -> None:
    with pytest.raises(ValueError, match="0 or 10 to 10000"):
        SequenceOptions(endpoint_silence_ms=silence_ms)
