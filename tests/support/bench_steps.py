"""The driver's side of the bench: steps are planned, run and committed, instances die, and everything is checked."""

import math
from collections.abc import Iterator

import numpy as np

from server.batching.sequence_batcher import Strategy
from server.effects import RowCompleted, SequenceEffect, SequenceLost
from server.errors import InstanceFailed, StepFailed
from server.ids import InstanceIndex, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Samples, Tensors
from tests.support.bench_state import BenchState, InFlight
from tests.support.expected_step import most_passed_over, row_due_ns
from tests.support.runs import DueRow, Run


class BenchSteps(BenchState):
    """Steps."""

    def plan(self, barred: frozenset[int] = frozenset()) -> BatchPlan | None:
        """Plan, check the plan and that none was due if there is none. Instances ``barred`` may not run."""
        deadline_ns = self.batcher.next_deadline_ns(lambda instance: instance not in barred)
        plan = self.batcher.plan(self.now_ns, lambda instance: instance not in barred)
        due = self.due_instances() - barred
        if plan is None:
            assert not due, f"nothing planned, though due: {due}"
            return None
        assert deadline_ns is not None, "work came without a deadline"
        assert deadline_ns <= self.now_ns, "work came before its deadline"
        assert plan.instance in due, "planned before it was due"
        urgencies = {instance: self._earliest_due_ns(instance) for instance in due}
        assert urgencies[plan.instance] == min(urgencies.values()), "not the instance with the earliest deadline"
        self._check_plan(plan)
        return plan

    def commit(
        self,
        instance: int,
        *,
        errors: tuple[str, ...] = (),
        failure: str | None = None,
        scrub: bool = True,
        newest: bool = False,
    ) -> list[SequenceEffect]:
        """Run a step in flight (the oldest) and commit it. ``errors``: sequences whose row fails; ``failure``: fail |
        lost.
        """
        plan, runs, due_rows = self._land(instance, newest=newest)
        bad = {index: "bad row" for index, row in enumerate(plan.rows) if row.sequence_id in errors}
        result: BatchResult | BatchFailure
        if failure is None:
            result = self.models[instance].run(plan, errors=bad, scrub=scrub, step_ns=5)
            if plan.rows:
                began_ns = max(plan.planned_at_ns, self.free_since_ns[instance])
                self.times[instance].note(sum(row.n_ticks for row in plan.rows), self.now_ns - began_ns)
        else:
            result = BatchFailure(plan_id=plan.plan_id, error="no step", instance_lost=failure == "lost")
        effects = self.batcher.commit(plan, result, self.now_ns)
        self.free_since_ns[instance] = self.now_ns
        for run in runs:
            run.in_flight = False
        if failure == "lost":
            self._check_loss(instance, runs, effects)
            return effects
        self._free_scrubbed(plan, result.scrubbed if isinstance(result, BatchResult) else ())
        expected = iter(effects)
        for index, (row, run) in enumerate(zip(plan.rows, runs, strict=True)):
            ran = result if isinstance(result, BatchResult) and index not in bad else None
            self._check_row(plan, row, run, due_rows[index], ran, expected)
        self._check_placements(list(expected))
        return effects

    def lose(self, instance: int) -> list[SequenceEffect]:
        """The instance dies, in a step or not."""
        was_lost = instance in self.lost
        steps = self.in_flight.pop(instance, [])
        effects = self.batcher.lose_instance(InstanceIndex(instance), "died", self.now_ns)
        if was_lost:
            assert not effects
            return effects
        self.orphans.setdefault(instance, []).extend(plan for plan, _, _ in steps)
        runs = [run for _, runs, _ in steps for run in runs]
        for run in runs:
            run.in_flight = False
        self._check_loss(instance, runs, effects)
        return effects

    def late(self, instance: int) -> None:
        """The result of a step in which the instance died comes after all: nobody may hear of it."""
        plan = self.orphans[instance].pop(0)
        stale_before = self.batcher.stats().stale_results
        assert self.batcher.commit(plan, self._model(InstanceIndex(instance)).run(plan), self.now_ns) == []
        assert self.batcher.stats().stale_results == stale_before + len(plan.rows)

    def restore(self, instance: int) -> None:
        """A lost instance runs again, its memory holding anything."""
        effects = self.batcher.instance_restored(InstanceIndex(instance), self.now_ns)
        self.models[instance] = self._model(InstanceIndex(instance))
        self.lost.remove(instance)
        self._check_placements(effects)

    # Plans

    def _land(self, instance: int, *, newest: bool) -> InFlight:
        steps = self.in_flight[instance]
        landed = steps.pop(-1 if newest else 0)
        if not steps:
            del self.in_flight[instance]
        return landed

    def _check_plan(self, plan: BatchPlan) -> None:
        assert plan.planned_at_ns == self.now_ns
        assert plan.rows or plan.scrub, "a step for nothing"
        assert set(plan.scrub) == self._scrub_due(plan.instance)
        able = self._able(plan.instance)
        step = self._expected_step(plan.instance)
        runs = step.runs if step is not None else []
        assert [row.sequence_id for row in plan.rows] == [run.name for run in runs]
        assert len({row.slot for row in plan.rows}) == len(plan.rows) <= self.config.max_batch
        self._check_span(plan)
        due_rows = [run.next_rows(self.config) for run in runs]
        for index, (row, run) in enumerate(zip(plan.rows, runs, strict=True)):
            if self.config.takes_turns:
                self._check_planned_turn(row, plan.tensors[index], due_rows[index][0], run)
            else:
                self._check_planned_row(row, plan.audio[index], due_rows[index], run)
            self._check_row_place(plan.instance, row, run)
        most = most_passed_over(self.config, self.config.slots_of(plan.instance)) + sum(run.solo for run in able)
        for run in able:
            if run not in runs:
                run.passed_over += 1
                assert run.passed_over <= most, "a row waits without bound"
        self.in_flight.setdefault(plan.instance, []).append((plan, runs, due_rows))
        self.n_steps += 1
        self.n_rows += len(plan.rows)
        self.n_caught_up += sum(len(rows) - 1 for rows in due_rows)

    def _earliest_due_ns(self, instance: int) -> float:
        due_ns = (row_due_ns(run, self.config) for run in self._able(instance))
        return min((at_ns for at_ns in due_ns if at_ns is not None), default=math.inf)

    def _check_span(self, plan: BatchPlan) -> None:
        if self.config.strategy is Strategy.OLDEST or not plan.rows:
            assert plan.span is None
            return
        slots = [row.slot for row in plan.rows]
        assert plan.span is not None
        assert slots == sorted(slots)
        assert (plan.span.first, plan.span.first + plan.span.n_slots - 1) == (slots[0], slots[-1])
        assert plan.span.n_slots <= self.config.max_batch
        self.n_padded += plan.span.n_slots - len(slots)

    def _check_row_place(self, instance: InstanceIndex, row: BatchRow, run: Run) -> None:
        assert run.place is not None
        place, generation = run.place
        assert place == (instance, row.slot), "moved"
        assert generation in (0, row.generation), "a tenancy of somebody else"
        run.place = (place, row.generation)
        run.passed_over = 0
        run.in_flight = True
        run.n_planned += row.n_ticks

    def _check_planned_row(self, row: BatchRow, samples: Samples, due: list[DueRow], run: Run) -> None:
        first, last = due[0], due[-1]
        assert row.n_ticks == len(due)
        assert row.ready_at_ns == last.ready_at_ns
        assert (row.start, row.flush, row.end) == (first.start, last.flush, last.end)
        assert (row.first_sample, row.n_samples) == (first.first_sample, last.end_sample - first.first_sample)
        assert (row.request_id, row.correlation_id) == (None, None)
        assert samples.dtype == np.float32
        assert samples.tolist() == run.sent[first.first_sample : last.end_sample]

    def _check_planned_turn(self, row: BatchRow, tensors: Tensors, due: DueRow, run: Run) -> None:
        assert (row.start, row.flush, row.end) == (due.start, False, due.end)
        assert (row.request_id, row.correlation_id, row.ready_at_ns) == (due.number, run.name, due.ready_at_ns)
        assert (row.first_sample, row.n_samples, row.n_ticks) == (0, 0, 1)
        assert tensors.arrays["INPUT"].shape[1:] == due.shape

    # Results

    def _check_row(
        self,
        plan: BatchPlan,
        row: BatchRow,
        run: Run,
        due: list[DueRow],
        result: BatchResult | None,
        effects: Iterator[SequenceEffect],
    ) -> None:
        """One row's part of a commit. ``result`` None: the row failed."""
        assert run.place is not None
        if result is None:
            self.quarantined[run.place[0]] = self.now_ns
        if run.terminal is not None:
            return
        if result is None:
            failed = next(effects)
            assert isinstance(failed, SequenceLost)
            assert isinstance(failed.error, StepFailed)
            self._terminal(run, failed)
            return
        for index, expected in enumerate(due):
            effect = next(effects)
            assert isinstance(effect, RowCompleted)
            self._check_completed(plan, row, effect, expected, is_first=not index)
            run.n_completed += 1
        self._is_alive(run)
        if not row.end:
            self._line_up(run)
        elif run.n_completed < len(run.rows(self.config)):
            self._next_life(run)
        else:
            self._terminal(run, next(effects))

    def _check_completed(
        self, plan: BatchPlan, row: BatchRow, effect: RowCompleted, due: DueRow, *, is_first: bool
    ) -> None:
        assert effect.output == due.reading, "not what the sequence would hear alone"
        assert (effect.batch_size, effect.step_ns, effect.plan_id) == (len(plan.rows), 5, plan.plan_id)
        assert effect.queue_ns == plan.planned_at_ns - due.ready_at_ns
        told = effect.row
        assert (told.slot, told.generation, told.sequence_id) == (row.slot, row.generation, row.sequence_id)
        assert (told.first_sample, told.first_sample + told.n_samples) == (due.first_sample, due.end_sample)
        assert (told.start, told.flush, told.end) == (due.start, due.flush, due.end)
        assert (told.n_ticks, told.request_id) == (1, row.request_id)
        assert told.start == (row.start and is_first)
        allowed_ns = self.config.flush_deadline_ns if due.flush else self.config.deadline_ns
        self.n_late += bool(allowed_ns) and self.now_ns > due.ready_at_ns + allowed_ns

    def _next_life(self, run: Run) -> None:
        """A START stands behind the END: it goes on in its slot, unless others wait for one."""
        if self.waiting():
            self._queue(run)
        else:
            self._line_up(run)

    def _check_loss(self, instance: int, in_step: list[Run], effects: list[SequenceEffect]) -> None:
        """Everything there fails, the steps' rows first; every slot is in doubt."""
        for plan, runs, _ in self.in_flight.pop(instance, []):
            self.orphans.setdefault(instance, []).append(plan)
            in_step = [*in_step, *runs]
            for run in runs:
                run.in_flight = False
        there = [run for run in self.placed() if run.instance == instance]
        names = [_name(effect) for effect in effects]
        first = [run.name for run in in_step if run.terminal is None]
        assert names[: len(first)] == first
        assert sorted(names) == sorted(run.name for run in there)
        for effect in effects:
            assert isinstance(effect, SequenceLost)
            assert isinstance(effect.error, InstanceFailed)
            self._terminal(self.live[effect.sequence_id], effect)
        self.lost.add(instance)
        for slot in range(self.config.slots_of(InstanceIndex(instance))):
            self.quarantined[InstanceIndex(instance), SlotIndex(slot)] = self.now_ns


def _name(effect: SequenceEffect) -> str:
    return effect.row.sequence_id if isinstance(effect, RowCompleted) else effect.sequence_id
