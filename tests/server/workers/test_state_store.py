"""A slot's state is its own: rows are initialised, compared, copied one by one, bit for bit."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, StateTensor
from server.workers.state_store import ALIGNMENT_BYTES, StateStore

SPEC = ModelSpec(
    name="test",
    scheduler=Scheduler.SEQUENCE,
    state={
        "cache": StateTensor(shape=(3, 2), dtype=torch.float32),
        "peak": StateTensor(shape=(), dtype=torch.float64, initial=-1.5),
        "tokens": StateTensor(shape=(4,), dtype=torch.int64, initial=7),
        "open": StateTensor(shape=(), dtype=torch.bool),
    },
)


def scribbled(store: StateStore) -> StateStore:
    """The store with NaN and other rubbish in every element."""
    for tensor in store.tensors.values():
        tensor.fill_(float("nan") if tensor.is_floating_point() else True)
    return store


def bits(tensor: Tensor) -> Tensor:
    return tensor.clone().contiguous().view(-1).view(torch.uint8)


def test_a_new_store_holds_initial_values_in_every_slot() -> None:
    store = StateStore(SPEC, 3, "cpu")
    assert store.slots == 3
    assert [store.is_clean(slot) for slot in range(3)] == [True, True, True]
    assert store.tensors["tokens"].tolist() == [[7] * 4] * 3
    assert store.tensors["peak"].tolist() == [-1.5] * 3


def test_all_tensors_are_aligned_parts_of_one_buffer_in_which_none_overlaps() -> None:
    store = StateStore(SPEC, 5, "cpu")
    assert 5 * SPEC.slot_bytes() <= store.n_bytes < 5 * SPEC.slot_bytes() + len(SPEC.state) * ALIGNMENT_BYTES
    spans = sorted((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in store.tensors.values())
    first = spans[0][0]
    assert all((begin - first) % ALIGNMENT_BYTES == 0 for begin, _ in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert spans[-1][1] <= first + store.n_bytes
    assert len({t.untyped_storage().data_ptr() for t in store.tensors.values()}) == 1
    assert all(t.is_contiguous() for t in store.tensors.values())


@pytest.mark.parametrize("slots", [(1,), (0, 2), (), (3, 1, 0)])
def test_initialise_changes_these_slots_and_no_other_bit(slots: tuple[int, ...]) -> None:
    store = scribbled(StateStore(SPEC, 4, "cpu"))
    before = {name: tensor.clone() for name, tensor in store.tensors.items()}
    store.initialise(slots)
    for slot in range(4):
        assert store.is_clean(slot) == (slot in slots)
        if slot not in slots:
            for name, tensor in store.tensors.items():
                assert torch.equal(bits(tensor[slot]), bits(before[name][slot]))


def test_initialise_keeps_the_tensors_themselves() -> None:
    store = StateStore(SPEC, 2, "cpu")
    addresses = {name: tensor.data_ptr() for name, tensor in store.tensors.items()}
    store.initialise((0, 1))
    assert {name: tensor.data_ptr() for name, tensor in store.tensors.items()} == addresses


@pytest.mark.parametrize(("name", "value"), [("cache", 1e-30), ("cache", float("nan")), ("tokens", 8), ("open", 1)])
def test_one_element_makes_a_slot_unclean(name: str, value: float) -> None:
    store = StateStore(SPEC, 2, "cpu")
    store.tensors[name][1].view(-1)[-1] = value
    assert store.is_clean(0)
    assert not store.is_clean(1)


def test_snapshots_are_copies_and_two_slots_can_be_swapped() -> None:
    store = StateStore(SPEC, 3, "cpu")
    store.tensors["cache"][0] = 1.0
    store.tensors["tokens"][2] = 9
    first, third = store.snapshot(0), store.snapshot(2)
    store.restore(0, third)
    store.restore(2, first)
    assert store.tensors["cache"][:, 0, 0].tolist() == [0.0, 0.0, 1.0]
    assert store.tensors["tokens"][:, 0].tolist() == [9, 7, 7]
    assert store.is_clean(1)


def test_slots_outside_are_refused() -> None:
    store = StateStore(SPEC, 2, "cpu")
    for slot in (-1, 2):
        with pytest.raises(IndexError):
            store.initialise((0, slot))
        with pytest.raises(IndexError):
            store.is_clean(slot)
        with pytest.raises(IndexError):
            store.snapshot(slot)
        with pytest.raises(IndexError):
            store.restore(slot, store.snapshot(0))
    with pytest.raises(ValueError, match="at least one slot"):
        StateStore(SPEC, 0, "cpu")


def with_file(path: Path, values: NDArray[Any], *, shape: tuple[int, ...] = (2, 3)) -> ModelSpec:
    np.save(path, values)
    mask = StateTensor(shape=shape, dtype=torch.float32, initial_file=str(path))
    return ModelSpec(name="test", scheduler=Scheduler.SEQUENCE, state={**SPEC.state, "mask": mask})


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("slots", [(1,), (0, 2)])
def test_initial_values_come_from_a_file(tmp_path: Path, slots: tuple[int, ...]) -> None:
    store = StateStore(with_file(tmp_path / "mask.npy", VALUES), 3, "cpu")
    assert store.tensors["mask"].tolist() == [VALUES.tolist()] * 3
    scribbled(store).initialise(slots)
    for slot in range(3):
        assert store.is_clean(slot) == (slot in slots)
        assert (store.tensors["mask"][slot].tolist() == VALUES.tolist()) == (slot in slots)
    store.tensors["mask"][slots[0], 1, 2] = 0.0
    assert not store.is_clean(slots[0])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (VALUES.T, r"mask: .*float32 \[3, 2\], the model declares torch.float32 \[2, 3\]"),
        (VALUES.astype(np.float64), r"mask: .*float64 \[2, 3\], the model declares"),
        (np.where(VALUES > 4, np.nan, VALUES).astype(np.float32), "mask: .*no numbers"),
        (np.where(VALUES > 4, np.inf, VALUES).astype(np.float32), "mask: .*no numbers"),
        (np.array([["text"]]), "mask: .*cannot|mask: .*can be read"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path: Path, values: NDArray[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StateStore(with_file(tmp_path / "mask.npy", values), 1, "cpu")


def test_a_file_is_read_as_numbers_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "mask.npy"
    spec = with_file(path, VALUES)
    for wrong in (b"no array", b""):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"mask: .*NumPy file"):
            StateStore(spec, 1, "cpu")
    np.save(path, np.array([object()] * 6, dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"mask: .*NumPy file"):
        StateStore(spec, 1, "cpu")
    path.unlink()
    with pytest.raises(ValueError, match=r"mask: .*NumPy file"):
        StateStore(spec, 1, "cpu")


def test_a_value_that_its_type_cannot_hold_is_refused_by_name() -> None:
    state = {"flags": StateTensor(shape=(2,), dtype=torch.uint8, initial=300)}
    with pytest.raises(ValueError, match="state flags: initial value 300"):
        StateStore(ModelSpec(name="test", scheduler=None, state=state), 1, "cpu")


@pytest.mark.parametrize("names", [("x", "x.table"), ("x.table", "x")])
def test_two_tensors_of_one_name_are_refused(names: tuple[str, str]) -> None:
    plain = StateTensor(shape=(4,), dtype=torch.int64)
    growing = StateTensor(shape=(4,), dtype=torch.float32, page=2)
    state = {name: growing if name == "x" else plain for name in names}
    with pytest.raises(ValueError, match="another tensor"):
        StateStore(ModelSpec(name="test", scheduler=None, state=state), 1, "cpu")


NAMES = st.one_of(
    st.sampled_from(["a_out", "z_in", "a_in", "z_out", "cache_last_channel", "cache_last_channel_len", "A", "a", ""]),
    st.text(max_size=6).filter(lambda name: "." not in name),
)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
ENTRIES = st.builds(
    StateTensor,
    shape=st.lists(st.integers(0, 3), max_size=3).map(tuple),
    dtype=st.sampled_from(DTYPES),
    initial=st.sampled_from([0.0, 1.0]),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.dictionaries(NAMES, ENTRIES, min_size=1, max_size=6),
    st.integers(1, 4),
    st.data(),
)
def test_whatever_tensors_are_called_each_has_its_own_values_in_every_slot(
    state: dict[str, StateTensor], slots: int, data: st.DataObject
) -> None:
    """Names that sort otherwise than they are declared, that begin like others, no bytes at all: none is taken for
    another, and a reset, a copy or a scribble reaches the slots that are named and no other."""
    store = StateStore(ModelSpec(name="test", scheduler=None, state=state), slots, "cpu")
    assert list(store.tensors) == list(state)
    generator = torch.Generator().manual_seed(1)
    for name, entry in state.items():
        assert store.tensors[name].shape == (slots, *entry.shape)
        assert store.tensors[name].dtype == entry.dtype
        scribble = torch.randint(0, 2, store.tensors[name].shape, generator=generator)
        store.tensors[name].copy_(scribble)
    before = {name: tensor.clone() for name, tensor in store.tensors.items()}
    fresh = data.draw(st.sets(st.integers(0, slots - 1)))
    source, target = data.draw(st.integers(0, slots - 1)), data.draw(st.integers(0, slots - 1))
    snapshot = store.snapshot(source)
    store.initialise(sorted(fresh))
    store.restore(target, snapshot)
    for name, entry in state.items():
        for slot in range(slots):
            expected = before[name][slot]
            if slot in fresh:
                expected = torch.full(entry.shape, entry.initial, dtype=entry.dtype)
            if slot == target:
                expected = before[name][source]
            assert torch.equal(bits(store.tensors[name][slot]), bits(expected)), (name, slot)
