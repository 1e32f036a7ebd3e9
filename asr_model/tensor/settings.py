"""Settings of the models that take tensors, free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ACCUMULATOR: Final = "accumulator"
HISTORY: Final = "history"
MOST_KEPT: Final = 1 << 20
MAX_VALUES: Final = 4096
PAGE_VALUES: Final = 64
SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """Everything about the accumulator that may be configured."""

    corrid: bool = False
    """Whether the last answer of a sequence has its correlation id added; of a text, the number that it spells."""

    @classmethod
    def of(cls, options: Mapping[str, object]) -> "AccumulatorSettings":
        """Settings from a configuration table.

        Raises:
            ValueError: an option is unknown or has no such value.
        """
        _refuse_unknown(ACCUMULATOR, options, "corrid")
        corrid = options.get("corrid", False)
        if not isinstance(corrid, bool):
            raise ValueError("corrid must be true or false")
        return cls(corrid=corrid)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Everything about the history model that may be configured."""

    max_values: int = MAX_VALUES
    """Values that one sequence may have in all; a multiple of ``page_values``."""
    page_values: int = PAGE_VALUES
    """Values of a page of the cache that all sequences of an instance share."""
    share: float = SHARE
    """The part of what all its sequences could have at most that an instance has memory for, above 0 to 1."""

    @classmethod
    def of(cls, options: Mapping[str, object]) -> "HistorySettings":
        """Settings from a configuration table.

        Raises:
            ValueError: an option is unknown or has no such value.
        """
        _refuse_unknown(HISTORY, options, "max_values, page_values, share")
        max_values = _count("max_values", options.get("max_values", MAX_VALUES))
        page_values = _count("page_values", options.get("page_values", PAGE_VALUES))
        if max_values % page_values:
            raise ValueError(f"max_values must be a multiple of page_values: {max_values} is none of {page_values}")
        share = options.get("share", SHARE)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share <= 1.0:
            raise ValueError("share must be above 0 and at most 1")
        return cls(max_values=max_values, page_values=page_values, share=float(share))


def _refuse_unknown(model: str, options: Mapping[str, object], known: str) -> None:
    if unknown := options.keys() - set(known.split(", ")):
        raise ValueError(f"{model} has no option {', '.join(sorted(unknown))}; it has {known}")


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_KEPT:
        raise ValueError(f"{name} must be 1 to {MOST_KEPT}")
    return value
