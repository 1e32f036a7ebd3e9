"""Which of the waiting requests make the next batch of a stateless model, and whether it waits for more.

Pure. Whoever is first decides: its shape is the batch's, and a request of another one is stepped over; so is audio of a
level below its own that is longer than the batch's, for it would make everyone's padding longer. Otherwise the first
request that has no room ends the batch, so that none is overtaken by one that needs less.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from server.batching.request_queue import Waiting
from server.errors import BadTensor, ConfigError
from server.plan import Request, Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What bounds a batch. Rows are requests of audio, or the rows of requests with tensors."""

    target_size: int
    """Rows of a full batch, at least 1."""
    preferred_sizes: tuple[int, ...] = ()
    """Sizes in rows that run best: the largest that can be formed goes at once. (): only the full batch does."""
    max_batch_samples: int
    """Bound on a batch's padded audio: its longest request times its size; at least 1."""
    ragged: frozenset[str] = frozenset()
    """Inputs whose lengths may differ inside a batch."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigError: a value is out of its bounds.
        """
        for name in ("target_size", "max_batch_samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for size in self.preferred_sizes:
            if not 1 <= size <= self.target_size:
                raise ConfigError(f"preferred_sizes must be 1 to {self.target_size}, not {size}")

    @property
    def enough(self) -> int:
        """Rows from which a batch waits for no more."""
        return max(self.preferred_sizes, default=self.target_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormedBatch:
    """The front of the queue."""

    chosen: tuple[Waiting, ...]
    n_rows: int
    padded_samples: int
    """Audio that the model will run over; 0: tensors."""
    is_ready: bool
    """Waiting longer would not make it better: it is full, of a preferred size, or others wait that cannot join."""


def rows_of(request: Request) -> int:
    """Rows that a request takes of a batch."""
    return request.payload.n_rows if isinstance(request.payload, Tensors) else 1


def shape_of(request: Request, ragged: frozenset[str]) -> object:
    """What the requests of one batch share: nothing for audio; names and types of tensors, and lengths behind the rows
    of those that are not ragged.

    Raises:
        BadTensor: a tensor has other rows than the request.
    """
    if not isinstance(request.payload, Tensors):
        return None
    for name, array in request.payload.arrays.items():
        if array.ndim == 0 or len(array) != request.payload.n_rows:
            raise BadTensor(f"{name} has shape {list(array.shape)}, but the request {request.payload.n_rows} rows")
    return tuple(
        (name, dtype, len(shape) if name in ragged else shape) for name, dtype, shape in request.payload.shape_key
    )


def form_batch(in_order: Iterable[Waiting], limits: BatchLimits, *, is_window_over: bool) -> FormedBatch:
    """The batch that the requests at the front make; without any, an empty one.

    Args:
        in_order: Who waits, first who should run first.
        limits: Bounds of a batch.
        is_window_over: Nothing is held back any more for a preferred size.
    """
    chosen: list[Waiting] = []
    n_rows = longest_samples = n_preferred = 0
    others_wait = False
    for waiting in in_order:
        n_samples = 0 if waiting.shape is not None else waiting.request.samples.size
        makes_longer = bool(chosen) and waiting.level > chosen[0].level and n_samples > longest_samples
        if makes_longer or (chosen and waiting.shape != chosen[0].shape):
            others_wait = True
            continue
        padded = max(longest_samples, n_samples) * (len(chosen) + 1)
        if n_rows + waiting.n_rows > limits.target_size or padded > limits.max_batch_samples:
            others_wait = True
            break
        if chosen and not n_preferred and n_rows + waiting.n_rows > limits.enough:
            n_preferred = len(chosen)
        chosen.append(waiting)
        n_rows += waiting.n_rows
        longest_samples = max(longest_samples, n_samples)
        if n_rows in limits.preferred_sizes:
            n_preferred = len(chosen)
        if n_rows == limits.target_size:
            break
    is_ready = bool(n_preferred) or others_wait or n_rows >= limits.enough
    if n_preferred and not is_window_over:
        chosen = chosen[:n_preferred]
    sizes = [each.request.samples.size for each in chosen if each.shape is None]
    return FormedBatch(
        chosen=tuple(chosen),
        n_rows=sum(each.n_rows for each in chosen),
        padded_samples=max(sizes, default=0) * len(chosen),
        is_ready=is_ready,
    )
