"""What ``optimize`` may be, free of torch. It changes kernels, never scheduling.

Measured and left out: ``compile`` gains nothing on the live model (0.99 to 1.08 of the time) and at most a tenth on the
light one, for half a minute at every start, a compiler on the machine, and seconds within a step whenever a batch of a
new size comes. ``cuda-graph`` wants a GPU and shapes that never change; those of a reading change with every word.
"""

from collections.abc import Mapping
from typing import Final

NAMES: Final = ("none", "bf16", "int8")
ON_CUDA: Final = ("none", "bf16")
"""CUDA multiplies eight bits only in batches that live steps do not have."""
PRECISIONS: Final[Mapping[str, str]] = {"none": "float32", "bf16": "bfloat16", "int8": "int8"}
"""Number format of the matrix products."""


def check(name: object, model: str, allowed: tuple[str, ...] = NAMES) -> None:
    """Whether a model takes that.

    Raises:
        ValueError: it does not; the message names what it takes.
    """
    if name not in allowed:
        raise ValueError(f"{model} takes optimize {', '.join(allowed)}, not {name!r}")
