"""One-shot slices wait for the live steps that run on their device, for a bounded time and for no others."""

from collections.abc import Callable

from server.workers.device_gate import PAUSE_LIMIT_S, DeviceGate, cells_needed


class Stopwatch:
    """Time that passes only in sleeps; something may happen at each."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.n_sleeps = 0
        self.during: Callable[[int], None] = lambda n_sleeps: None

    def read(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.n_sleeps += 1
        self.during(self.n_sleeps)


def gate_of(devices: list[str]) -> tuple[DeviceGate, Stopwatch]:
    stopwatch = Stopwatch()
    gate = DeviceGate([0] * cells_needed(len(devices)), stopwatch.read, stopwatch.sleep)
    for index, device in enumerate(devices):
        gate.place(index, device)
    return gate, stopwatch


def test_an_idle_device_makes_nobody_wait() -> None:
    gate, stopwatch = gate_of(["cpu", "cuda:0"])
    gate.enter(0)
    gate.leave(0)
    gate.pause("cpu")
    assert stopwatch.n_sleeps == 0


def test_a_pause_lasts_until_the_running_step_ends() -> None:
    gate, stopwatch = gate_of(["cpu"])
    gate.enter(0)
    stopwatch.during = lambda n_sleeps: gate.leave(0) if n_sleeps == 7 else None
    gate.pause("cpu")
    assert stopwatch.n_sleeps == 7


def test_a_step_that_begins_meanwhile_is_not_waited_for() -> None:
    gate, stopwatch = gate_of(["cpu"])
    gate.enter(0)

    def next_step_at_once(n_sleeps: int) -> None:
        gate.leave(0)
        gate.enter(0)

    stopwatch.during = next_step_at_once
    gate.pause("cpu")
    assert stopwatch.n_sleeps == 1


def test_all_live_instances_of_the_device_count() -> None:
    gate, stopwatch = gate_of(["cuda:0", "cuda:0"])
    gate.enter(0)
    gate.enter(1)
    stopwatch.during = lambda n_sleeps: gate.leave({2: 1, 5: 0}[n_sleeps]) if n_sleeps in (2, 5) else None
    gate.pause("cuda:0")
    assert stopwatch.n_sleeps == 5


def test_other_devices_do_not_count() -> None:
    gate, stopwatch = gate_of(["cuda:1", "cuda:0", "cpu"])
    gate.enter(1)
    gate.enter(2)
    gate.pause("cuda:1")
    assert stopwatch.n_sleeps == 0


def test_a_step_that_hangs_holds_nobody_for_ever() -> None:
    gate, stopwatch = gate_of(["cpu", "cpu"])
    gate.enter(0)
    gate.enter(1)
    gate.pause("cpu")
    assert PAUSE_LIMIT_S <= stopwatch.now_s < PAUSE_LIMIT_S + 0.01


def test_a_lost_instance_is_cleared_by_whoever_notices() -> None:
    cells = [0] * cells_needed(1)
    gate = DeviceGate(cells)
    gate.place(0, "cpu")
    gate.enter(0)
    DeviceGate(cells).leave(0)
    stopwatch = Stopwatch()
    DeviceGate(cells, stopwatch.read, stopwatch.sleep).pause("cpu")
    assert stopwatch.n_sleeps == 0


def test_a_place_that_is_cleared_is_of_nobody_and_the_others_stand() -> None:
    gate, stopwatch = gate_of(["cpu", "cpu"])
    gate.abandon(0, 17)
    gate.enter(0)
    gate.enter(1)
    gate.clear(0)
    assert not gate.is_abandoned(0, 17)
    stopwatch.during = lambda n_sleeps: gate.leave(1) if n_sleeps == 3 else None
    gate.pause("cpu")
    assert stopwatch.n_sleeps == 3, "clearing a place has ended another's step, or left its own going"
