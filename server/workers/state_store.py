"""The state tensors of one instance: a row per slot, declared by the model, owned here (I2).

One of the few places that import torch. All tensors are views of one buffer on the device. Slots are only ever changed
in place, row by row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from asr_model.contract import ModelSpec, StateTensor
from asr_model.paged_cache import PagedCache, check_pages, page_parts, part_names, size_name

ALIGNMENT_BYTES: Final = 256
"""Of each tensor in the buffer: as the allocators of devices give it, which kernels may count on."""


class StateStore:
    """Tensors [S, *shape], one per entry of the model's declared state; of caches that grow, those of
    ``asr_model.paged_cache``.

    Args:
        spec: The model's declaration.
        slots: S, at least 1.
        device: Torch device name.
        shares_pages: False: caches that grow have all the memory that all slots could take, whatever share of it the
            model declares, so that no slot can run out because of another.

    Raises:
        ValueError: There is no slot, or what is declared makes no state.
    """

    def __init__(self, spec: ModelSpec, slots: int, device: str, *, shares_pages: bool = True) -> None:
        if slots < 1:
            raise ValueError(f"a state store needs at least one slot, not {slots}")
        if not shares_pages:
            spec = replace(spec, state={name: replace(entry, share=1.0) for name, entry in spec.state.items()})
        self._slots = slots
        self._device = torch.device(device)
        self._initial = {name: values.to(device) for name, values in initial_values(spec).items()}
        places = _places(spec, slots)
        self._buffer = torch.empty(sum(place.n_bytes for place in places.values()), dtype=torch.uint8, device=device)
        self._tensors = _views(self._buffer, places)
        self._caches = {name: PagedCache(name, self._tensors) for name, entry in spec.state.items() if entry.page}
        for name, tensor in self._tensors.items():
            tensor.copy_(self._initial[name] if name in self._initial else torch.tensor(places[name].initial))

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors themselves, for the model's step."""
        return self._tensors

    @property
    def slots(self) -> int:
        """S."""
        return self._slots

    @property
    def n_bytes(self) -> int:
        """Memory that the one buffer takes on the device."""
        return self._buffer.numel()

    @property
    def cache_bytes(self) -> int:
        """Of it, what caches that grow have for all slots together."""
        return sum(cache.n_pages * cache.page_bytes for cache in self._caches.values())

    @property
    def cache_bytes_used(self) -> int:
        """Of that, what slots hold now."""
        return sum(cache.n_pages_used * cache.page_bytes for cache in self._caches.values())

    def initialise(self, slots: Sequence[int]) -> None:
        """Gives these slots their initial values, in place; no other slot changes.

        Raises:
            IndexError: A slot is outside 0 … S - 1.
        """
        if not slots:
            return
        index = self._index(slots)
        for name, values in self._initial.items():
            if name in self._caches:
                self._caches[name].release(index, float(values))
            elif len(slots) == 1:
                self._tensors[name][slots[0]].copy_(values)
            elif values.dim() == 0:
                self._tensors[name].index_fill_(0, index, values)
            else:
                self._tensors[name][index] = values

    def release(self, slots: Sequence[int]) -> None:
        """Gives the pages of slots back whose sequences are over; what else they hold stays until their next START.

        Raises:
            IndexError: A slot is outside 0 … S - 1.
        """
        if slots and self._caches:
            index = self._index(slots)
            for name, cache in self._caches.items():
                cache.release(index, float(self._initial[name]))

    def faults(self, slots: Sequence[int]) -> dict[int, str]:
        """Index into ``slots`` to what went wrong with that slot's memory in the step.

        Raises:
            IndexError: A slot is outside 0 … S - 1.
        """
        if not (slots and self._caches):
            return {}
        index = self._index(slots)
        return {i: words for cache in self._caches.values() for i, words in cache.faults(index).items()}

    def is_clean(self, slot: int) -> bool:
        """Whether every element of the slot equals its initial value (NaN never does), and no page that it may be given
        holds anything.

        Raises:
            IndexError: The slot is outside 0 … S - 1.
        """
        self._check(slot)
        return all(
            self._caches[name].is_empty(slot, float(values))
            if name in self._caches
            else bool((self._tensors[name][slot] == values).all())
            for name, values in self._initial.items()
        )

    def snapshot(self, slot: int) -> dict[str, Tensor]:
        """Copies of a slot's tensors, each [*shape]. Of a cache that grows the same, zeros behind what it holds, and
        beside it how much that is.

        Raises:
            IndexError: The slot is outside 0 … S - 1.
        """
        index = self._index((slot,))
        copies = {name: self._tensors[name][slot].clone() for name in self._initial if name not in self._caches}
        for name, cache in self._caches.items():
            held, sizes = cache.read(index)
            copies[name] = held.new_zeros(cache.max_entries, *held.shape[2:])
            copies[name][: held.shape[1]] = held[0]
            copies[size_name(name)] = sizes[0]
        return copies

    def restore(self, slot: int, snapshot: Mapping[str, Tensor]) -> None:
        """Writes a snapshot into a slot, in place. The slot need not be the one it was taken from.

        Raises:
            IndexError: The slot is outside 0 … S - 1.
            KeyError: The snapshot lacks a declared tensor.
            MemoryError: A cache that grows has no pages left for it.
        """
        index = self._index((slot,))
        for name, values in self._initial.items():
            if name not in self._caches:
                self._tensors[name][slot].copy_(snapshot[name])
                continue
            self._caches[name].release(index, float(values))
            if not self._caches[name].append(index, snapshot[name][None], snapshot[size_name(name)][None]).all():
                raise MemoryError(f"state {name}: no pages left")

    def _index(self, slots: Sequence[int]) -> Tensor:
        for slot in slots:
            self._check(slot)
        return torch.tensor(slots, dtype=torch.long, device=self._device)

    def _check(self, slot: int) -> None:
        if not 0 <= slot < self._slots:
            raise IndexError(f"slot {slot} of {self._slots}")


def initial_values(spec: ModelSpec) -> dict[str, Tensor]:
    """What a slot holds at START: per declared tensor its shape, or one value for all of it.

    Raises:
        ValueError: A value does not fit its tensor, a file is missing or of another shape or type or not finite, a
            cache that grows is none, or two tensors have one name.
    """
    names: set[str] = set()
    values = {}
    for name, entry in spec.state.items():
        own = part_names(name) if entry.page else (name,)
        if names.intersection(own):
            raise ValueError(f"state {name}: another tensor of the state has its name, or that of a part of it")
        names.update(own)
        if entry.page:
            check_pages(name, entry)
        values[name] = _of_file(name, entry) if entry.initial_file else _constant(name, entry)
    return values


def _constant(name: str, entry: StateTensor) -> Tensor:
    try:
        return torch.full((), entry.initial, dtype=entry.dtype)
    except RuntimeError as error:
        raise ValueError(f"state {name}: initial value {entry.initial} is no {entry.dtype}") from error


def _of_file(name: str, entry: StateTensor) -> Tensor:
    path = entry.initial_file
    try:
        values = torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise ValueError(f"state {name}: {path} is no NumPy file that can be read: {error}") from error
    if values.dtype != entry.dtype or values.shape != entry.shape:
        found, wanted = (
            f"{dtype} {list(shape)}" for dtype, shape in ((values.dtype, values.shape), (entry.dtype, entry.shape))
        )
        raise ValueError(f"state {name}: {path} holds {found}, the model declares {wanted}")
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"state {name}: {path} holds values that are no numbers")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    shape: tuple[int, ...]
    dtype: torch.dtype
    initial: float
    n_bytes: int
    """In the buffer, what aligns the next one included."""


def _places(spec: ModelSpec, slots: int) -> dict[str, _Place]:
    places = {}
    for name, entry in spec.state.items():
        if entry.page:
            for part, declared in page_parts(name, entry, slots).items():
                places[part] = _place(declared.shape, declared.dtype, declared.initial)
        else:
            places[name] = _place((slots, *entry.shape), entry.dtype, entry.initial)
    return places


def _place(shape: tuple[int, ...], dtype: torch.dtype, initial: float) -> _Place:
    n_bytes = -(-math.prod(shape) * dtype.itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return _Place(shape=shape, dtype=dtype, initial=initial, n_bytes=n_bytes)


def _views(buffer: Tensor, places: Mapping[str, _Place]) -> dict[str, Tensor]:
    views, first = {}, 0
    for name, place in places.items():
        last = first + math.prod(place.shape) * place.dtype.itemsize
        views[name] = buffer[first:last].view(place.dtype).view(place.shape)
        first += place.n_bytes
    return views
