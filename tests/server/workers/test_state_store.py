"""A slot's state is its own: rows are initialised, compared, copied one by one, bit for bit."""

import pytest
import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, StateTensor
from server.workers.state_store import StateStore

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


def test_its_size_is_what_the_model_declares() -> None:
    assert StateStore(SPEC, 5, "cpu").n_bytes == 5 * SPEC.slot_bytes()


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
