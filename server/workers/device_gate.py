"""Live steps go first: a one-shot batch pauses between its slices while a live step runs on the same device. And a
one-shot batch that nobody wants any more is told so between its slices.

A row of integers, a pair per live instance: the device that it runs on and a count that is odd while a step runs; then,
from the end, a pair per one-shot instance: 0 and the batch that it should abandon. Each pair has one writer, so that
neither processes nor threads need a lock, and the death of a writer blocks nobody. A one-shot process on the CPU needs
no pauses: it is nice (``worker_host``).
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

PAUSE_LIMIT_S: Final = 0.5
"""A pause ends after this time whatever the live steps do: finals never starve."""
POLL_S: Final = 0.001


class Cells(Protocol):
    """Integers that all sides see: a list between threads, shared memory between processes."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...
    def __len__(self) -> int: ...


def cells_needed(live_instances: int, one_shot_instances: int = 1) -> int:
    """Length of the cells for so many instances; all start as 0."""
    return 2 * (live_instances + one_shot_instances)


class DeviceGate:
    """What live instances announce and one-shot instances wait for.

    Args:
        cells: ``cells_needed(…)`` integers, 0 at first, shared by all gates of an engine.
        now_s: Stopwatch of the pause, in seconds.
        sleep_s: Waits that many seconds.
    """

    __slots__ = ("_cells", "_now_s", "_sleep_s")

    def __init__(
        self,
        cells: Cells,
        now_s: Callable[[], float] = time.monotonic,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cells = cells
        self._now_s = now_s
        self._sleep_s = sleep_s

    def clear(self, instance: int) -> None:
        """The place is empty, of either kind: nothing of what its former instance announced or was told stands."""
        self._cells[2 * instance] = 0
        self.leave(instance)
        self._cells[self._last_batch(instance)] = 0

    def place(self, instance: int, device: str) -> None:
        """A live instance runs on this device from now on and is in no step."""
        self._cells[2 * instance] = _device_code(device)
        self.leave(instance)

    def enter(self, instance: int) -> None:
        """A step of the live instance begins."""
        self._cells[2 * instance + 1] |= 1

    def leave(self, instance: int) -> None:
        """Its step ended, or it is gone."""
        count = self._cells[2 * instance + 1]
        self._cells[2 * instance + 1] = count + (count & 1)

    def abandon(self, instance: int, plan_id: int) -> None:
        """The one-shot instance should not go on with that batch, if it is still at it."""
        self._cells[self._last_batch(instance)] = plan_id

    def is_abandoned(self, instance: int, plan_id: int) -> bool:
        """Whether the one-shot instance should stop."""
        return self._cells[self._last_batch(instance)] == plan_id

    def _last_batch(self, instance: int) -> int:
        return len(self._cells) - 1 - 2 * instance

    def pause(self, device: str) -> None:
        """Returns when every live step that runs on the device right now has ended, or the limit is over.

        A step that begins meanwhile is not waited for: between two slices a saturated device gives one step, not all.
        """
        code = _device_code(device)
        running = [
            (index, self._cells[index])
            for index in range(1, len(self._cells), 2)
            if self._cells[index] & 1 and self._cells[index - 1] == code
        ]
        deadline_s = self._now_s() + PAUSE_LIMIT_S
        for index, count in running:
            while self._cells[index] == count and self._now_s() < deadline_s:
                self._sleep_s(POLL_S)


def _device_code(device: str) -> int:
    """A positive number per device: the CPU 1, CUDA devices from 2."""
    kind, _, index = device.partition(":")
    return 1 if kind == "cpu" else 2 + int(index or 0)
