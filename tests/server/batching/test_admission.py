"""What neither batcher lets in."""

import numpy as np
import pytest
from numpy.typing import NDArray

from server.batching.admission import check_audio, check_result
from server.errors import BadAudio, ServiceError
from server.plan import BatchFailure, BatchResult, RowResult


@pytest.mark.parametrize("samples", [np.zeros(0, np.float32), np.ones(3, np.float32)])
def test_audio_is_let_in(samples: NDArray[np.float32]) -> None:
    check_audio(samples)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((2, 2), np.float32), r"audio must be float32 \[N\], not float32 \[2, 2\]"),
        (np.zeros(3, np.int16), r"audio must be float32 \[N\], not int16 \[3\]"),
        (np.zeros(3, np.float64), r"audio must be float32 \[N\], not float64 \[3\]"),
        (np.array([0, np.nan], np.float32), "audio has samples that are not finite"),
        (np.array([np.inf, 0], np.float32), "audio has samples that are not finite"),
        (np.array([-np.inf], np.float32), "audio has samples that are not finite"),
    ],
)
def test_what_is_no_audio_is_not(samples: NDArray[np.float32], message: str) -> None:
    with pytest.raises(BadAudio, match=message):
        check_audio(samples)


def test_results_belong_to_their_plan() -> None:
    result = BatchResult(plan_id=3, rows=(RowResult(),))
    check_result(result, 3, 1)
    check_result(BatchFailure(plan_id=3, error="no step"), 3, 1)
    with pytest.raises(ServiceError, match="a result of plan 3 was given for plan 4"):
        check_result(result, 4, 1)
    with pytest.raises(ServiceError, match="plan 3 has 2 rows, its result 1"):
        check_result(result, 3, 2)
