"""Settings of the light model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from asr_model import optimize_names

NAME: Final = "light-lstm"


@dataclass(frozen=True, slots=True, kw_only=True)
class LightSettings:
    """It has but one option, and that one value: with other kernels its random words would be others."""

    optimize: str = "none"
    """none."""

    @classmethod
    def of(cls, options: Mapping[str, object]) -> "LightSettings":
        """Settings from a configuration table.

        Raises:
            ValueError: an option is unknown or has no such value.
        """
        if unknown := options.keys() - {"optimize"}:
            raise ValueError(f"{NAME} has no option {', '.join(sorted(unknown))}")
        optimize_names.check(options.get("optimize", "none"), NAME, ("none",))
        return cls()
