"""Settings of the sentiment classifier, free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "sentiment"
WEIGHTS: Final = Path(__file__).parents[1] / "weights" / "sentiment.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentimentSettings:
    """Everything about the classifier that may be configured."""

    weights: str = ""
    """File of weights, as ``asr_model.sentiment.train`` writes it; empty: those of the package."""

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.weights) if self.weights else WEIGHTS

    @classmethod
    def of(cls, options: Mapping[str, object]) -> "SentimentSettings":
        """Settings from a configuration table.

        Raises:
            ValueError: an option is unknown or has no such value.
        """
        if unknown := options.keys() - {"weights"}:
            raise ValueError(f"{NAME} has no option {', '.join(sorted(unknown))}; it has weights")
        weights = options.get("weights", "")
        if not isinstance(weights, str):
            raise ValueError("weights must be the path of a file")
        return cls(weights=weights)
