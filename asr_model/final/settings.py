"""Settings of the final model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from asr_model import optimize_names

NAME: Final = "moonshine-base"
DTYPE_NAMES: Final = ("fp32", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalSettings:
    """Everything about the final model that may be configured (``[final.options]``)."""

    weights: str = ""
    """Where Moonshine's weights are; empty: see ``asr_model.moonshine.weights``."""
    dtype: str = "fp32"
    """Number format of weights and matrix products, fp32 or bf16. bf16 halves their memory and is for GPUs."""
    optimize: str = "none"
    """none, bf16 (the same as ``dtype``) or int8: matrix products of eight bits."""

    @property
    def kernels(self) -> str:
        """What it comes to: none, bf16 or int8."""
        return "bf16" if self.dtype == "bf16" else self.optimize

    @classmethod
    def of(cls, options: Mapping[str, object]) -> "FinalSettings":
        """Settings from a configuration table.

        Raises:
            ValueError: an option is unknown or has no such value.
        """
        if unknown := options.keys() - {"weights", "dtype", "optimize"}:
            raise ValueError(f"{NAME} has no option {', '.join(sorted(unknown))}; it has weights, dtype, optimize")
        weights, dtype = options.get("weights", ""), options.get("dtype", "fp32")
        optimize = options.get("optimize", "none")
        if not isinstance(weights, str):
            raise ValueError("weights must be a path")
        if not isinstance(dtype, str) or dtype not in DTYPE_NAMES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPE_NAMES)}")
        optimize_names.check(optimize, NAME)
        if dtype == "bf16" and optimize == "int8":
            raise ValueError("dtype = 'bf16' and optimize = 'int8' exclude each other")
        return cls(weights=weights, dtype=dtype, optimize=str(optimize))
