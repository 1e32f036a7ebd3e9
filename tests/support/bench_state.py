"""What the bench knows: who is live, which slot is whose, who waits for one, what is in flight; and what must hold."""

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from server.batching.backlog import MOST_PASSED_OVER
from server.batching.sequence_batcher import SequenceBatcher, SequenceBatcherConfig
from server.batching.step_times import StepTimes
from server.effects import SequenceEffect, SequenceEnded, SequenceLost, SequencePlaced, SequenceQueued
from server.errors import IdleTimeout
from server.events import CloseCause
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchPlan, BatchResult
from tests.support.accumulator import AccumulatorModel
from tests.support.expected_step import ExpectedStep, expected_step
from tests.support.runs import DueRow, Run, SlotPlace

InFlight = tuple[BatchPlan, list[Run], list[list[DueRow]]]


class PlanRunner(Protocol):
    """One instance."""

    def run(
        self, plan: BatchPlan, *, errors: Mapping[int, str] | None = None, scrub: bool = True, step_ns: int = 0
    ) -> BatchResult:
        """Run a plan; rows of ``errors`` fail and leave their slot in doubt."""


class BenchState:
    """The reference's own account of a batcher, moved by the verbs of ``bench`` and ``bench_steps``."""

    def __init__(self, config: SequenceBatcherConfig) -> None:
        self.config = config
        self.batcher = SequenceBatcher(config)
        self.indexes = [InstanceIndex(index) for index in range(config.instances)]
        self.models = [self._model(index) for index in self.indexes]
        self.times = [StepTimes() for _ in self.indexes]
        self.free_since_ns = [0] * config.instances
        self.now_ns = 0
        self.live: dict[str, Run] = {}
        self.gone: dict[str, Run] = {}
        self.in_flight: dict[int, list[InFlight]] = {}
        """Steps of each busy instance, the oldest first."""
        self.orphans: dict[int, list[BatchPlan]] = {}
        self.quarantined: dict[SlotPlace, int] = {}
        """Slots in doubt, and when the next scrub of each may be tried."""
        self.lost: set[int] = set()
        self.passed_levels = [0] * config.backlog_levels
        self.n_runs = self.n_turns = self.n_terminal = self.n_numbers = self.n_signs = 0
        self.n_queued = self.n_placed = self.n_idle = self.n_restarts = 0
        self.n_steps = self.n_rows = self.n_padded = self.n_caught_up = self.n_late = 0

    def check(self) -> None:
        """Everything that holds between verbs."""
        stats = self.batcher.stats()
        assert stats.live == len(self.live)
        assert stats.started == self.n_runs
        assert sum(stats.ended.values()) == self.n_terminal
        assert stats.live + self.n_terminal == self.n_runs
        for index, lane in enumerate(stats.instances):
            held = [run for run in self.placed() if run.instance == index]
            assert lane.slots_held == len(held) + len(self._leaving(index))
            assert lane.slots_quarantined == sum(place[0] == index for place in self.quarantined)
            assert lane.slots == self.config.slots_of(InstanceIndex(index))
            assert lane.is_lost == (index in self.lost)
            assert lane.steps_in_flight == len(self.in_flight.get(index, ()))
        places = [run.place[0] for run in self.placed() if run.place]
        assert len(places) == len(set(places)), "a slot with two tenants"
        assert not set(places) & set(self.quarantined), "a tenant in a quarantined slot"
        n_queued = sum(run.queued(self.config) for run in self.live.values())
        assert (stats.queued_turns if self.config.takes_turns else stats.queued_samples) == n_queued
        assert stats.ready_rows == sum(self.is_able(run) for run in self.live.values())
        assert self.batcher.free_slots() == sum(self.free_by_instance())
        assert (stats.steps, stats.rows, stats.padded_slots) == (self.n_steps, self.n_rows, self.n_padded)
        assert (stats.catch_up_ticks, stats.late_rows) == (self.n_caught_up, self.n_late)
        assert (stats.restarts, stats.idle) == (self.n_restarts, self.n_idle)
        assert (stats.queued, stats.placed) == (self.n_queued, self.n_placed)
        self._check_backlog()
        deadline_ns = self.batcher.next_deadline_ns()
        assert not self.due_instances() or (deadline_ns is not None and deadline_ns <= self.now_ns), "a lost deadline"
        for run in self.live.values():
            if not run.is_closed:
                assert self.batcher.room(SequenceId(run.name)) == self._most_queued() - run.queued(self.config)

    def placed(self) -> list[Run]:
        """Live runs with a slot."""
        return [run for run in self.live.values() if run.instance is not None]

    def waiting(self) -> list[Run]:
        """Live runs that wait for a slot."""
        return [run for run in self.live.values() if run.instance is None]

    def free_by_instance(self) -> list[int]:
        """Free slots of each instance that takes sequences."""
        taken = Counter(run.instance for run in self.live.values())
        taken.update(place[0] for place in self.quarantined)
        return [
            0 if index in self.lost else self.config.slots_of(index) - taken[index] - len(self._leaving(index))
            for index in self.indexes
        ]

    def n_giving_way(self) -> int:
        """Slots whose tenants gave way, and have a row in flight."""
        return sum(run.gives_way for index in self.indexes for run in self._leaving(index))

    def is_able(self, run: Run) -> bool:
        """Whether a row of it can be planned."""
        return run.instance is not None and not run.in_flight and run.next_row(self.config) is not None

    def due_instances(self) -> set[int]:
        """Instances that must get a step now: for rows, or for a slot in doubt that may be scrubbed."""
        due: set[int] = set()
        for instance in self.indexes:
            steps = self.in_flight.get(instance, [])
            if instance in self.lost or (steps and not self._takes_another(instance, steps)):
                continue
            step = self._expected_step(instance)
            if (step is not None and step.is_due) or self._scrub_due(instance):
                due.add(instance)
        return due

    def is_quiet(self) -> bool:
        """Whether neither ``plan`` nor ``expire`` may have anything to do now."""
        deadline_ns = self.batcher.next_deadline_ns()
        return deadline_ns is None or deadline_ns > self.now_ns

    # Slots

    def _model(self, instance: InstanceIndex) -> PlanRunner:
        return AccumulatorModel(self.config.slots_of(instance), tick_samples=self.config.tick_samples)

    def _leaving(self, instance: int) -> list[Run]:
        return [run for _, runs, _ in self.in_flight.get(instance, []) for run in runs if run.terminal]

    def _free_slots(self, instance: InstanceIndex) -> list[SlotIndex]:
        there = [run for run in self.live.values() if run.instance == instance]
        taken = {run.place[0] for run in [*there, *self._leaving(instance)] if run.place}
        slots = (SlotIndex(slot) for slot in range(self.config.slots_of(instance)))
        return [s for s in slots if (instance, s) not in taken and (instance, s) not in self.quarantined]

    def _seat(self, run: Run, instance: InstanceIndex) -> None:
        """An instance with the greatest share of its slots free, and there the lowest."""
        free = self.free_by_instance()
        shares = [count / self.config.slots_of(index) for index, count in zip(self.indexes, free, strict=True)]
        assert shares[instance] == max(shares), "not the instance with most free slots"
        run.place = ((instance, self._free_slots(instance)[0]), 0)
        run.instance = instance
        self._is_alive(run)
        self._line_up(run)

    def _scrub_due(self, instance: int) -> set[SlotIndex]:
        under_way = {slot for plan, _, _ in self.in_flight.get(instance, []) for slot in plan.scrub}
        due = {slot for (where, slot), at_ns in self.quarantined.items() if where == instance and at_ns <= self.now_ns}
        return due - under_way

    def _free_scrubbed(self, plan: BatchPlan, scrubbed: tuple[SlotIndex, ...]) -> None:
        for slot in plan.scrub:
            if slot in scrubbed:
                del self.quarantined[plan.instance, slot]
            else:
                self.quarantined[plan.instance, slot] = self.now_ns + self.config.scrub_retry_ns

    # The backlog

    def _queue(self, run: Run) -> None:
        self.n_queued += 1
        run.instance, run.place = None, None
        run.queued_at_ns = self.now_ns
        self.n_turns += 1
        run.turn = self.n_turns
        run.told = 0
        if len(self.waiting()) <= self.n_giving_way():
            run.level = 0

    def _check_placements(self, effects: list[SequenceEffect]) -> None:
        """Free slots go to those who wait, in their order; then the others are told where they stand."""
        for effect in effects:
            assert isinstance(effect, SequencePlaced | SequenceQueued), "an effect without a row"
            run = self.live[effect.sequence_id]
            assert run.instance is None, "it has a slot"
            if isinstance(effect, SequencePlaced):
                assert effect.waited_ns == self.now_ns - run.queued_at_ns
                self._check_level(run)
                self.n_placed += 1
                self._seat(run, effect.instance)
            else:
                assert effect.position != run.told, "told again"
                run.told = effect.position
        assert [type(each) for each in effects] == sorted((type(each) for each in effects), key=lambda t: t.__name__)
        for run in self.waiting():
            told = self.batcher.place_in_line(SequenceId(run.name))
            if told is None:
                assert run.told <= self.n_giving_way()
            else:
                assert run.told in (0, told.position), "moved without being told"

    def _check_level(self, run: Run) -> None:
        waiting = self.waiting()
        levels = sorted({each.level for each in waiting})
        assert run.turn == min(each.turn for each in waiting if each.level == run.level), "overtaken in its own level"
        assert run.level == levels[0] or self.passed_levels[run.level] >= MOST_PASSED_OVER
        for level in levels:
            self.passed_levels[level] = 0 if level == run.level else self.passed_levels[level] + 1
            assert self.passed_levels[level] <= MOST_PASSED_OVER + len(self.passed_levels), (
                "a level waits without bound"
            )

    def _check_backlog(self) -> None:
        waiting = self.waiting()
        stats = self.batcher.stats()
        assert stats.backlog == len(waiting)
        assert not waiting or not self.batcher.free_slots(), "a slot is free while somebody waits"
        oldest_ns = min((run.queued_at_ns for run in waiting), default=None)
        assert stats.backlog_oldest_ns <= (0 if oldest_ns is None else self.now_ns - oldest_ns)
        places = {run.name: self.batcher.place_in_line(SequenceId(run.name)) for run in waiting}
        positions = {name: place.position for name, place in places.items() if place is not None}
        assert sorted(positions.values()) == list(range(self.n_giving_way() + 1, len(waiting) + 1))
        for level in range(self.config.backlog_levels):
            line = sorted((run for run in waiting if run.level == level), key=lambda run: run.turn)
            in_line = [positions.get(run.name, 0) for run in line]
            assert in_line == sorted(in_line)
        for run in self.placed():
            assert self.batcher.place_in_line(SequenceId(run.name)) is None

    # Runs

    def _is_alive(self, run: Run) -> None:
        self.n_signs += 1
        run.alive_at_ns, run.alive_order = self.now_ns, self.n_signs

    def _line_up(self, run: Run) -> None:
        if self.is_able(run):
            self.n_turns += 1
            run.turn = self.n_turns
            run.passed_over = 0

    def _able(self, instance: int) -> list[Run]:
        able = [run for run in self.placed() if run.instance == instance and self.is_able(run)]
        return sorted(able, key=lambda run: run.turn)

    def _expected_step(self, instance: InstanceIndex) -> ExpectedStep | None:
        able = self._able(instance)
        if not able:
            return None
        silent = [run for run in self.placed() if run.instance == instance and not run.in_flight]
        return expected_step(
            able,
            self.config,
            n_slots=self.config.slots_of(instance),
            n_silent=len(silent) - len(able),
            times=self.times[instance],
            now_ns=self.now_ns,
        )

    def _takes_another(self, instance: int, steps: list[InFlight]) -> bool:
        """Whether a busy instance gets its next step now."""
        plan = steps[0][0]
        step_ns = self.times[instance].expected_ns(sum(row.n_ticks for row in plan.rows))
        if not self.config.lead_ns or len(steps) > 1 or step_ns is None:
            return False
        return self.now_ns >= max(plan.planned_at_ns, self.free_since_ns[instance]) + step_ns - self.config.lead_ns

    def _most_queued(self) -> int:
        return self.config.max_queued_turns if self.config.takes_turns else self.config.max_queued_samples

    def _terminal(self, run: Run, effect: SequenceEffect) -> None:
        assert isinstance(effect, SequenceEnded | SequenceLost)
        assert run.terminal is None, "two terminal effects"
        assert effect.sequence_id == run.name
        assert effect.received_samples == len(run.sent)
        if isinstance(effect, SequenceEnded) and effect.cause is CloseCause.END:
            assert not run.is_expired
            assert run.n_completed == len(run.rows(self.config)), "ended before everything was answered"
        elif run.is_expired and isinstance(effect, SequenceLost) and isinstance(effect.error, IdleTimeout):
            assert run.n_completed == len(run.rows(self.config)), "lost before what it had said was read"
        waits = [other for other in self.waiting() if other is not run]
        if run.instance is None and all(other.level != run.level for other in waits):
            self.passed_levels[run.level] = 0
        run.terminal = effect
        self.n_terminal += 1
        self.gone[run.name] = self.live.pop(run.name)
