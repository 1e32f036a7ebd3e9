"""The state tensors of one instance: a row per slot, declared by the model, owned here (I2).

One of the three places that import torch. Slots are only ever changed in place, row by row.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, StateTensor


class StateStore:
    """Tensors [S, *shape], one per entry of the model's declared state.

    Args:
        spec: The model's declaration.
        slots: S, at least 1.
        device: Torch device name.
    """

    def __init__(self, spec: ModelSpec, slots: int, device: str) -> None:
        if slots < 1:
            raise ValueError(f"a state store needs at least one slot, not {slots}")
        self._slots = slots
        self._declared: Mapping[str, StateTensor] = dict(spec.state)
        self._tensors = {
            name: torch.full((slots, *entry.shape), entry.initial, dtype=entry.dtype, device=device)
            for name, entry in self._declared.items()
        }

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
        """Memory that the tensors take on the device."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors.values())

    def initialise(self, slots: Sequence[int]) -> None:
        """Gives these slots their initial values, in place; no other slot changes.

        Raises:
            IndexError: A slot is outside 0 … S - 1.
        """
        if not slots:
            return
        for slot in slots:
            self._check(slot)
        for name, tensor in self._tensors.items():
            if len(slots) == 1:
                tensor[slots[0]].fill_(self._declared[name].initial)
            else:
                index = torch.tensor(slots, dtype=torch.long, device=tensor.device)
                tensor.index_fill_(0, index, self._declared[name].initial)

    def is_clean(self, slot: int) -> bool:
        """Whether every element of the slot equals its initial value (NaN never does).

        Raises:
            IndexError: The slot is outside 0 … S - 1.
        """
        self._check(slot)
        return all(
            bool((tensor[slot] == torch.full_like(tensor[slot], self._declared[name].initial)).all())
            for name, tensor in self._tensors.items()
        )

    def snapshot(self, slot: int) -> dict[str, Tensor]:
        """Copies of a slot's tensors, each [*shape].

        Raises:
            IndexError: The slot is outside 0 … S - 1.
        """
        self._check(slot)
        return {name: tensor[slot].clone() for name, tensor in self._tensors.items()}

    def restore(self, slot: int, snapshot: Mapping[str, Tensor]) -> None:
        """Writes a snapshot into a slot, in place. The slot need not be the one it was taken from.

        Raises:
            IndexError: The slot is outside 0 … S - 1.
            KeyError: The snapshot lacks a declared tensor.
        """
        self._check(slot)
        for name, tensor in self._tensors.items():
            tensor[slot].copy_(snapshot[name])

    def _check(self, slot: int) -> None:
        if not 0 <= slot < self._slots:
            raise IndexError(f"slot {slot} of {self._slots}")
