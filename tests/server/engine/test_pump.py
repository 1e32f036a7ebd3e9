"""The one timer: what is due runs, in order, and nothing is armed twice."""

from collections.abc import Callable

from server.engine.pump import Pump
from tests.support.manual_clock import ManualClock


class Driver:
    """Runs at times that a test sets; notes what it did."""

    def __init__(self, name: str, log: list[str], clock: ManualClock) -> None:
        self.name = name
        self.log = log
        self.clock = clock
        self.due_ns: list[int] = []
        self.does: Callable[[], None] | None = None
        """Once, when it next runs."""

    def next_deadline_ns(self) -> int | None:
        return min(self.due_ns, default=None)

    def pump(self, now_ns: int) -> None:
        for due_ns in [each for each in self.due_ns if each <= now_ns]:
            self.due_ns.remove(due_ns)
            self.log.append(f"{self.name}@{due_ns}:{self.clock.now_ns()}")
            if self.does is not None:
                does, self.does = self.does, None
                does()


def test_each_deadline_is_met_once_and_in_order() -> None:
    clock, log = ManualClock(), list[str]()
    pump = Pump(clock)
    later, first = Driver("later", log, clock), Driver("first", log, clock)
    pump.add(later, order=1)
    pump.add(first, order=0)
    later.due_ns, first.due_ns = [5, 20], [5, 9]
    pump.run()
    clock.advance(100)
    assert log == ["first@5:5", "later@5:5", "first@9:9", "later@20:20"]


def test_asked_within_itself_it_runs_once_more() -> None:
    clock, log = ManualClock(), list[str]()
    pump = Pump(clock)
    first, second = Driver("first", log, clock), Driver("second", log, clock)
    pump.add(first, order=0)
    pump.add(second, order=1)
    first.due_ns, second.due_ns = [0], [0]

    def gives_the_first_more() -> None:
        first.due_ns.append(0)
        pump.run()
        assert log == ["first@0:0", "second@0:0"], "not within itself"

    second.does = gives_the_first_more
    pump.run()
    assert log == ["first@0:0", "second@0:0", "first@0:0"]


def test_a_deadline_that_moves_nearer_is_met_and_one_that_moves_away_costs_no_timer() -> None:
    clock, log = ManualClock(), list[str]()
    pump, driver = Pump(clock), Driver("it", log, clock)
    driver.due_ns = [50]
    pump.add(driver, order=0)
    driver.due_ns = [10]
    pump.run_if_due(driver)
    driver.due_ns = [30]
    pump.run_if_due(driver)
    assert len([timer for timer in clock._timers if not timer.is_cancelled]) == 1
    clock.advance(100)
    assert log == ["it@30:30"]


def test_what_was_removed_and_what_has_stopped_is_not_run() -> None:
    clock, log = ManualClock(), list[str]()
    pump = Pump(clock)
    gone, kept = Driver("gone", log, clock), Driver("kept", log, clock)
    gone.due_ns, kept.due_ns = [1, 2], [1]
    pump.add(gone, order=0)
    pump.add(kept, order=1)
    pump.remove(gone)
    clock.advance(1)
    kept.due_ns = [5]
    pump.run()
    pump.stop()
    clock.advance(100)
    assert log == ["kept@1:1"]
