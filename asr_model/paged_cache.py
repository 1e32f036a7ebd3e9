"""Caches that grow: pages shared by the slots of an instance. Memory follows what sequences hold, and is bounded.

A ``StateTensor`` with a ``page`` becomes five tensors of the state, named after it: its pages, and behind a dot who
owns them, each slot's table of them, how much each slot holds, and what went wrong with it. Entries are written once,
in place, at the end of each row's own cache; nothing is moved or copied when a cache grows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, dtype

from asr_model.contract import StateTensor

NOBODY: Final = -1
"""Owner of a free page, and page of a part of a table that has none yet."""
IS_FULL, IS_OUT_OF_PAGES = 1, 2
"""Faults of a slot."""
_PARTS: Final = ("owner", "table", "size", "fault")


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePart:
    """One tensor that a growing cache is made of, whole."""

    shape: tuple[int, ...]
    dtype: dtype
    initial: float


def page_parts(name: str, entry: StateTensor, slots: int) -> dict[str, PagePart]:
    """The tensors of a growing cache for so many slots.

    Raises:
        ValueError: what is declared makes no cache.
    """
    check_pages(name, entry)
    per_slot = entry.shape[0] // entry.page
    n_pages = max(per_slot, math.ceil(entry.share * slots * per_slot))
    pages = PagePart(shape=(n_pages, entry.page, *entry.shape[1:]), dtype=entry.dtype, initial=entry.initial)
    owner = PagePart(shape=(n_pages,), dtype=torch.int64, initial=NOBODY)
    table = PagePart(shape=(slots, per_slot), dtype=torch.int64, initial=NOBODY)
    size = PagePart(shape=(slots,), dtype=torch.int64, initial=0)
    return dict(zip(part_names(name), (pages, owner, table, size, size), strict=True))


def part_names(name: str) -> tuple[str, ...]:
    """Names of the tensors of a growing cache: the pages have its own."""
    return name, *(f"{name}.{part}" for part in _PARTS)


def size_name(name: str) -> str:
    """Of the tensor that tells how much each slot holds: int64 [S]."""
    return f"{name}.size"


def check_pages(name: str, entry: StateTensor) -> None:
    """Whether a declaration makes a growing cache.

    Raises:
        ValueError: it does not.
    """
    if not entry.shape or entry.shape[0] < 1 or entry.page < 1 or entry.shape[0] % entry.page:
        raise ValueError(
            f"state {name}: its first axis must hold whole pages of {entry.page}, its shape is {entry.shape}"
        )
    if not 0.0 < entry.share <= 1.0:
        raise ValueError(f"state {name}: share must be above 0 and at most 1, not {entry.share}")
    if entry.initial_file:
        raise ValueError(f"state {name}: a cache that grows is empty at START, it has no initial_file")


class PagedCache:
    """One growing cache of an instance's state.

    Args:
        name: as declared.
        state: of all slots.
    """

    def __init__(self, name: str, state: Mapping[str, Tensor]) -> None:
        self._name = name
        self._pages, self._owner, self._table, self._size, self._fault = (state[part] for part in part_names(name))

    @property
    def max_entries(self) -> int:
        """Entries that one slot can hold."""
        return self._table.shape[1] * self._pages.shape[1]

    @property
    def n_pages(self) -> int:
        """Pages of all slots together."""
        return len(self._owner)

    @property
    def n_pages_used(self) -> int:
        """Pages that some slot has now."""
        return int((self._owner != NOBODY).sum())

    @property
    def page_bytes(self) -> int:
        """Memory of one page."""
        return self._pages[0].numel() * self._pages.element_size()

    def sizes(self, slots: Tensor) -> Tensor:
        """Entries that int64 [B] slots hold: int64 [B]."""
        return self._size[slots]

    def append(self, slots: Tensor, entries: Tensor, counts: Tensor | None = None) -> Tensor:
        """Writes entries behind those that each slot holds; no other slot changes.

        A row that would get more than a slot can hold, or for which no pages are left, is left as it is and marked:
        the instance fails it, and it alone.

        Args:
            slots: int64 [B], distinct.
            entries: [B, N, …].
            counts: int64 [B]: so many of each row's, the first ones; None: all.

        Returns:
            bool [B]: the rows that were written.
        """
        if counts is None:
            counts = torch.full_like(slots, entries.shape[1])
        before = self._size[slots]
        after = before + counts
        fits = after <= self.max_entries
        granted = self._grant(slots, before, torch.where(fits, after, before))
        written = fits & granted
        self._write(slots, before, entries, torch.where(written, counts, 0))
        self._size[slots] = torch.where(written, after, before)
        self._fault[slots] = torch.where(fits, torch.where(granted, self._fault[slots], IS_OUT_OF_PAGES), IS_FULL)
        return written

    def read(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """What slots hold: entries [B, W, …], zeros behind a row's own, and int64 [B] how many are its own.

        W is the most that one of them holds. This copies; ``pages`` and ``table`` are for kernels that do without.
        """
        sizes = self._size[slots]
        at = torch.arange(int(sizes.max()) if len(slots) else 0, device=slots.device)
        pages = self._table[slots][:, at // self._pages.shape[1]].clamp(min=0)
        entries = self._pages[pages, at % self._pages.shape[1]]
        is_own = (at < sizes[:, None]).view(*sizes.shape, len(at), *([1] * (entries.dim() - 2)))
        return entries.masked_fill(~is_own, 0), sizes

    @property
    def pages(self) -> Tensor:
        """[P, page, …]: entry e of slot s is at ``pages[table[s, e // page], e % page]``."""
        return self._pages

    @property
    def table(self) -> Tensor:
        """int64 [S, T]."""
        return self._table

    def release(self, slots: Tensor, initial: float) -> None:
        """Empties int64 [B] slots; their pages are free again, with nothing of them left."""
        freed = torch.isin(self._owner, slots).nonzero()[:, 0]
        self._pages.index_fill_(0, freed, initial)
        self._owner.index_fill_(0, freed, NOBODY)
        self._table.index_fill_(0, slots, NOBODY)
        self._size.index_fill_(0, slots, 0)
        self._fault.index_fill_(0, slots, 0)

    def is_empty(self, slot: int, initial: float) -> bool:
        """Whether a slot holds nothing, and no page that it may be given has anything of anybody."""
        free = self._pages[(self._owner == NOBODY).nonzero()[:, 0]]
        return bool(
            (self._size[slot] == 0)
            & (self._fault[slot] == 0)
            & (self._table[slot] == NOBODY).all()
            & (self._owner != slot).all()
            & (free == torch.full_like(free, initial)).all()
        )

    def faults(self, slots: Tensor) -> dict[int, str]:
        """Index into int64 [B] slots to what went wrong with that one."""
        words = {
            IS_FULL: f"{self._name} is full: a sequence may hold {self.max_entries} entries",
            IS_OUT_OF_PAGES: f"{self._name} has no page left: all {self.n_pages} are in use",
        }
        return {i: words[fault] for i, fault in enumerate(self._fault[slots].tolist()) if fault}

    def _grant(self, slots: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """Gives rows the pages that they need: bool [B], false for those for which there are not enough."""
        page = self._pages.shape[1]
        held = (before + page - 1) // page
        needed = (after + page - 1) // page - held
        free = (self._owner == NOBODY).nonzero()[:, 0]
        granted = _first_come(needed, len(free))
        given = torch.where(granted, needed, 0)
        rows = torch.repeat_interleave(torch.arange(len(slots), device=slots.device), given)
        pages = free[: len(rows)]
        nth = torch.arange(len(rows), device=slots.device) - (given.cumsum(0) - given)[rows]
        self._owner[pages] = slots[rows]
        self._table[slots[rows], held[rows] + nth] = pages
        return granted

    def _write(self, slots: Tensor, before: Tensor, entries: Tensor, counts: Tensor) -> None:
        page = self._pages.shape[1]
        offset = torch.arange(entries.shape[1], device=slots.device)
        row, nth = (offset < counts[:, None]).nonzero().unbind(1)
        at = before[row] + nth
        self._pages[self._table[slots[row], at // page], at % page] = entries[row, nth]


def _first_come(needed: Tensor, n_free: int) -> Tensor:
    """Rows that get what they need, in order; one that needs too much takes nothing from those behind it: bool [B]."""
    granted = needed.cumsum(0) <= n_free
    if bool(granted.all()):
        return granted
    taken = 0
    fits = []
    for wanted in needed.tolist():
        fits.append(taken + wanted <= n_free)
        taken += wanted if fits[-1] else 0
    return torch.tensor(fits, device=needed.device)
