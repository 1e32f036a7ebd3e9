"""What neither batcher lets in: audio that is none, and results that belong to no step."""

import numpy as np

from server.errors import BadAudio, ServiceError
from server.plan import BatchFailure, BatchResult, Samples


def check_audio(samples: Samples) -> None:
    """Samples are float32 [N] and finite.

    Raises:
        BadAudio: they are not.
    """
    if samples.ndim != 1 or samples.dtype != np.float32:
        raise BadAudio(f"audio must be float32 [N], not {samples.dtype} {list(samples.shape)}")
    if not np.isfinite(samples).all():
        raise BadAudio("audio has samples that are not finite")


def check_result(result: BatchResult | BatchFailure, plan_id: int, n_rows: int) -> None:
    """A result names its plan and, if the step ran, answers each of its rows.

    Raises:
        ServiceError: it does not.
    """
    if result.plan_id != plan_id:
        raise ServiceError(f"a result of plan {result.plan_id} was given for plan {plan_id}")
    if isinstance(result, BatchResult) and len(result.rows) != n_rows:
        raise ServiceError(f"plan {plan_id} has {n_rows} rows, its result {len(result.rows)}")
