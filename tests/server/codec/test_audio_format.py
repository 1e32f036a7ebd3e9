"""What a client declares."""

import pytest

from server.codec.audio_format import CODED_ENCODINGS, ENCODINGS, PCM_ENCODINGS, AudioFormat


@pytest.mark.parametrize("encoding", PCM_ENCODINGS)
def test_raw_samples_need_a_rate(encoding: str) -> None:
    assert AudioFormat(encoding=encoding, sample_rate=8000).is_pcm
    with pytest.raises(AssertionError):
        AudioFormat(encoding=encoding)


@pytest.mark.parametrize("encoding", [None, *CODED_ENCODINGS])
def test_the_rest_does_not(encoding: str | None) -> None:
    assert not AudioFormat(encoding=encoding).is_pcm


@pytest.mark.parametrize(
    "wrong",
    [
        {"encoding": "amr-nb"},
        {"channels": 0},
        {"channels": 9},
        {"sample_rate": 3999},
        {"sample_rate": 96_001},
    ],
)
def test_values_are_the_callers_to_check(wrong: dict[str, int | str]) -> None:
    with pytest.raises(AssertionError):
        AudioFormat(**wrong)  # type: ignore[arg-type]


def test_no_encoding_is_named_twice() -> None:
    assert len(set(ENCODINGS)) == len(ENCODINGS)
