"""Finds how many streams are held, in few trials. Pure: it is told what held and says what to try next."""

from dataclasses import dataclass

GROWTH = 1.2
"""From trial to trial as long as all is held."""


@dataclass(slots=True, kw_only=True)
class StreamSearch:
    """Grows from a first guess, or halves it as often as it takes, until it has both sides; then tries between them."""

    guess: int
    limit: int
    """Never more streams than that."""
    most_trials: int
    """From the first that was held; before it only 1 stream is the end: a search without a figure is worth nothing."""
    resolution: int = 1
    """It stops where the two sides are this near, once something is held."""
    held: int = 0
    """Most streams that were held."""
    failed: int | None = None
    """Fewest that were not."""
    trials: int = 0
    """Since the first that was held, itself included."""

    def next(self) -> int | None:
        """Streams to try; None: it is known well enough."""
        if self.trials >= self.most_trials or self.held >= self.limit:
            return None
        if self.failed is None:
            grown = max(self.held + self.resolution, round(self.held * GROWTH))
            return min(self.limit, grown if self.held else max(1, self.guess))
        if self.held == 0:
            return self.failed // 2 or None
        if self.failed - self.held <= self.resolution:
            return None
        return (self.held + self.failed) // 2

    def tell(self, streams: int, *, was_held: bool) -> None:
        """The outcome of a trial. What fails makes everything above it fail, whatever was held before."""
        if was_held or self.trials:
            self.trials += 1
        if was_held:
            self.held = max(self.held, streams)
            if self.failed is not None and self.failed <= streams:
                self.failed = None
        else:
            self.failed = streams if self.failed is None else min(self.failed, streams)
            self.held = min(self.held, streams - 1)
