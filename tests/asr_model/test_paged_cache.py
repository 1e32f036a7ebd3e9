"""Caches that grow: every slot's entries are its own, written once, and memory is bounded."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from asr_model.contract import ModelSpec, StateTensor
from asr_model.paged_cache import PagedCache, page_parts
from server.workers.state_store import StateStore

ENTRY = StateTensor(shape=(12, 2), dtype=torch.float32, page=4, share=1.0, initial=-1.0)


def store_of(slots: int, entry: StateTensor = ENTRY) -> tuple[StateStore, PagedCache]:
    store = StateStore(ModelSpec(name="growing", scheduler=None, state={"heard": entry}), slots, "cpu")
    return store, PagedCache("heard", store.tensors)


def index(*slots: int) -> Tensor:
    return torch.tensor(slots, dtype=torch.long)


def entries(*firsts: float, n: int) -> Tensor:
    """[B, n, 2]: rows that count up from a first value each."""
    return torch.stack([torch.arange(first, first + 2 * n).view(n, 2) for first in firsts]).float()


def held(cache: PagedCache, slot: int) -> list[list[float]]:
    values, sizes = cache.read(index(slot))
    assert values.shape[1] == int(sizes[0])
    return [list(entry) for entry in values[0].tolist()]


def test_rows_grow_by_their_own_counts_and_keep_what_they_have() -> None:
    _, cache = store_of(3)
    assert cache.append(index(2, 0), entries(10, 50, n=3), torch.tensor([3, 1])).tolist() == [True, True]
    assert cache.append(index(0, 2), entries(70, 30, n=6), torch.tensor([6, 2])).tolist() == [True, True]
    assert held(cache, 2) == [[10, 11], [12, 13], [14, 15], [30, 31], [32, 33]]
    assert held(cache, 0) == [[50, 51], *entries(70, n=6)[0].tolist()]
    assert held(cache, 1) == []
    assert cache.sizes(index(0, 1, 2)).tolist() == [7, 0, 5]
    assert cache.n_pages_used == 4


def test_reading_several_slots_shows_zeros_behind_what_is_their_own() -> None:
    _, cache = store_of(2)
    cache.append(index(0, 1), entries(10, 50, n=5), torch.tensor([5, 2]))
    values, sizes = cache.read(index(1, 0))
    assert sizes.tolist() == [2, 5]
    assert values[0].tolist() == [[50, 51], [52, 53], [0, 0], [0, 0], [0, 0]]


def test_what_is_appended_goes_where_the_table_says_and_nothing_moves() -> None:
    _, cache = store_of(2)
    cache.append(index(0), entries(10, n=4))
    before = cache.pages.clone()
    cache.append(index(1), entries(90, n=3))
    cache.append(index(0), entries(20, n=4))
    first = int(cache.table[0, 0])
    assert torch.equal(cache.pages[first], before[first])
    assert cache.pages[cache.table[0, 1], 0].tolist() == [20, 21]


def test_a_row_that_would_hold_too_much_fails_alone_and_keeps_what_it_has() -> None:
    store, cache = store_of(2)
    cache.append(index(0), entries(10, n=11))
    assert cache.append(index(0, 1), entries(40, 60, n=2)).tolist() == [False, True]
    assert held(cache, 0) == entries(10, n=11)[0].tolist()
    assert held(cache, 1) == entries(60, n=2)[0].tolist()
    assert store.faults((1, 0)) == {1: "heard is full: a sequence may hold 12 entries"}


def test_a_row_for_which_no_pages_are_left_fails_alone() -> None:
    store, cache = store_of(4, replace(ENTRY, share=0.5))
    assert cache.n_pages == 6
    cache.append(index(0), entries(10, n=12))
    granted = cache.append(index(1, 2, 3), entries(20, 30, 40, n=12), torch.tensor([4, 12, 8]))
    assert granted.tolist() == [True, False, True]
    assert held(cache, 2) == []
    assert held(cache, 3) == entries(40, n=8)[0].tolist()
    assert store.faults((3, 2)) == {1: "heard has no page left: all 6 are in use"}
    assert (store.cache_bytes, store.cache_bytes_used) == (6 * 32, 6 * 32)


def test_start_frees_the_pages_and_wipes_them() -> None:
    store, cache = store_of(2, replace(ENTRY, share=0.5))
    cache.append(index(0), entries(10, n=12))
    assert cache.append(index(1), entries(20, n=1)).tolist() == [False]
    store.initialise((0, 1))
    assert (cache.n_pages_used, store.faults((0, 1))) == (0, {})
    assert torch.equal(cache.pages, torch.full_like(cache.pages, -1.0))
    assert cache.append(index(1), entries(20, n=12)).tolist() == [True]


@pytest.mark.parametrize("part", ["heard", "heard.owner", "heard.table", "heard.size", "heard.fault"])
def test_anything_left_behind_makes_a_slot_unclean(part: str) -> None:
    store, cache = store_of(2)
    assert store.is_clean(1)
    cache.append(index(0), entries(10, n=2))
    assert store.is_clean(1)
    store.tensors[part].view(-1)[-1] = 1
    assert not store.is_clean(1)
    store.initialise((1,))
    assert store.is_clean(1) == (part != "heard"), "what lies on a page that nobody has is no slot's to wipe"


def test_a_snapshot_moves_to_another_slot() -> None:
    store, cache = store_of(3)
    cache.append(index(0, 1), entries(10, 50, n=5), torch.tensor([5, 2]))
    first, second = store.snapshot(0), store.snapshot(1)
    store.restore(2, first)
    store.restore(0, second)
    assert held(cache, 2) == entries(10, n=5)[0].tolist()
    assert held(cache, 0) == held(cache, 1) == entries(50, n=2)[0].tolist()
    small, _ = store_of(1, replace(ENTRY, shape=(4, 2)))
    with pytest.raises(MemoryError, match="heard"):
        small.restore(0, first)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (replace(ENTRY, page=5), "whole pages of 5"),
        (replace(ENTRY, shape=()), "whole pages"),
        (replace(ENTRY, share=0.0), "share"),
        (replace(ENTRY, share=1.5), "share"),
        (replace(ENTRY, initial_file="x.npy"), "initial_file"),
    ],
)
def test_what_makes_no_cache_is_refused_by_name(entry: StateTensor, words: str) -> None:
    with pytest.raises(ValueError, match=f"state heard: .*{words}"):
        store_of(2, entry)


def test_one_whole_slot_fits_whatever_the_share() -> None:
    assert page_parts("heard", replace(ENTRY, share=0.01), 4)["heard"].shape == (3, 4, 2)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("start"), st.sets(st.integers(0, 3), min_size=1)),
            st.tuples(st.just("append"), st.dictionaries(st.integers(0, 3), st.integers(0, 7), min_size=1)),
        ),
        max_size=25,
    )
)
def test_any_history_reads_as_lists_would(steps: list[tuple[str, object]]) -> None:
    """Against plain lists: what each slot holds, who fails, and that no more pages are used than are held."""
    store, cache = store_of(4, replace(ENTRY, share=0.5))
    model: dict[int, list[list[float]]] = {slot: [] for slot in range(4)}
    broken: set[int] = set()
    for number, (verb, given_slots) in enumerate(steps):
        if verb == "start":
            assert isinstance(given_slots, set)
            store.initialise(sorted(given_slots))
            for slot in given_slots:
                model[slot] = []
            broken -= given_slots
            continue
        assert isinstance(given_slots, dict)
        rows = {slot: n for slot, n in given_slots.items() if slot not in broken}
        if not rows:
            continue
        new = entries(*(1000.0 * number + 100 * slot for slot in rows), n=7)
        written = cache.append(index(*rows), new, torch.tensor(list(rows.values())))
        for row, (slot, n) in enumerate(rows.items()):
            fits = len(model[slot]) + n <= 12
            others = sum(-(-len(each) // 4) for other, each in model.items() if other != slot)
            has_pages = others + -(-(len(model[slot]) + n) // 4) <= 6
            assert bool(written[row]) == (fits and has_pages)
            if written[row]:
                model[slot] += new[row, :n].tolist()
            else:
                broken.add(slot)
    assert set(store.faults(range(4))) == broken
    for slot in range(4):
        assert held(cache, slot) == model[slot]
    assert cache.n_pages_used == sum(-(-len(each) // 4) for each in model.values())
    assert np.unique(cache.table[cache.table >= 0]).size == cache.n_pages_used, "a page has two owners"
