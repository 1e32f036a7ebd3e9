"""A sequence batcher with accumulators for instances, and a plain reference of what must be true after every verb.

The reference is written from the contract alone: which rows a sequence must get (``solo_rows``), who holds which slot,
what may be in flight. Every verb checks what it got against it, so a test only has to drive.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from server.batching.sample_queue import PortionKind
from server.batching.sequence_batcher import SequenceBatcher, SequenceBatcherConfig
from server.effects import RowCompleted, SequenceEffect, SequenceEnded, SequenceLost
from server.errors import IdleTimeout, InstanceFailed, MoorageError, StepFailed
from server.events import CloseCause
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Chunk, Samples
from tests.support.accumulator import AccumulatorModel, SoloRow, solo_rows

Place = tuple[InstanceIndex, SlotIndex]


@dataclass(kw_only=True, eq=False)
class Run:
    """One life of a sequence id as the reference knows it."""

    name: str
    voice: int
    sent: list[float] = field(default_factory=list)
    marks: list[tuple[int, PortionKind]] = field(default_factory=list)
    n_planned: int = 0
    n_completed: int = 0
    in_flight: bool = False
    place: tuple[Place, int] | None = None
    """Slot and generation of its rows, known from its first one."""
    instance: int | None = None
    terminal: SequenceEffect | None = None
    turn: int = 0
    """Order in which sequences became able to run."""
    passed_over: int = 0
    """Steps of its instance that went without it since it became able to run."""
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    """(samples sent in all, when) after each offer."""
    mark_arrivals: list[int] = field(default_factory=list)
    alive_at_ns: int = 0
    is_expired: bool = False
    """The batcher ended it, because it was idle for too long."""

    @property
    def is_closed(self) -> bool:
        return bool(self.marks) and self.marks[-1][1] is PortionKind.END


class Bench:
    """Drives a batcher and checks it; the attributes are for the test to read."""

    def __init__(self, config: SequenceBatcherConfig) -> None:
        self.config = config
        self.batcher = SequenceBatcher(config)
        self.models = [AccumulatorModel(config.slots) for _ in range(config.instances)]
        self.now_ns = 0
        self.live: dict[str, Run] = {}
        self.gone: dict[str, Run] = {}
        self.in_flight: dict[int, tuple[BatchPlan, list[Run]]] = {}
        self.orphans: dict[int, list[BatchPlan]] = {}
        self.quarantined: dict[Place, int] = {}
        """Slots in doubt, and when the next scrub of each may be tried."""
        self.lost: set[int] = set()
        self.n_runs = 0
        self.n_turns = 0
        self.n_terminal = 0

    # What the caller does

    def offer(
        self, name: str, n_samples: int = 0, *, start: bool = False, finalize: bool = False, end: bool = False
    ) -> str:
        """Offer the sequence's next samples; "ok", or the code of the refusal, which must be the one due."""
        due = self._refusal_due(name, n_samples, start=start, finalize=finalize)
        run = Run(name=name, voice=self.n_runs + 1) if start else self.live.get(name)
        position = 0 if run is None else len(run.sent)
        values = _speech(1 if run is None else run.voice, position, n_samples)
        free_before = self.free_by_instance()
        code = self._try_offer(_chunk(name, values, start, finalize, end))
        assert (code in due) if due else (code == "ok"), f"{code}, due was {due or 'ok'}"
        if code != "ok":
            return code
        assert run is not None
        was_able = self.is_able(run)
        if start:
            self._opened(run, free_before)
        run.sent += [float(value) for value in values]
        run.marks += [(len(run.sent), PortionKind.FINALIZE)] * finalize + [(len(run.sent), PortionKind.END)] * end
        run.mark_arrivals += [self.now_ns] * (finalize + end)
        run.arrivals.append((len(run.sent), self.now_ns))
        run.alive_at_ns = self.now_ns
        if not was_able:
            self._line_up(run)
        return "ok"

    def touch(self, name: str) -> str:
        """Keep-alive; "ok" or the code of the refusal."""
        try:
            self.batcher.touch(SequenceId(name), self.now_ns)
        except MoorageError as error:
            assert name not in self.live
            return error.code
        self.live[name].alive_at_ns = self.now_ns
        return "ok"

    def cancel(self, name: str) -> list[SequenceEffect]:
        """Cancel; exactly one terminal effect if the sequence was live."""
        effects = self.batcher.cancel(SequenceId(name), self.now_ns)
        run = self.live.get(name)
        assert len(effects) == (run is not None)
        if run is not None:
            self._terminal(run, effects[0])
            assert isinstance(effects[0], SequenceEnded)
            assert effects[0].cause is CloseCause.CANCELLED
        return effects

    # What the driver does

    def plan(self) -> BatchPlan | None:
        """Plan, check the plan and that none was due if there is none."""
        deadline_ns = self.batcher.next_deadline_ns()
        plan = self.batcher.plan(self.now_ns)
        if plan is None:
            assert not self.due_instances(), f"nothing planned, though due: {self.due_instances()}"
            return None
        assert deadline_ns is not None, "work came without a deadline"
        assert deadline_ns <= self.now_ns, "work came before its deadline"
        assert plan.instance in self.due_instances(), "planned before it was due"
        self._check_plan(plan)
        return plan

    def commit(
        self, instance: int, *, errors: tuple[str, ...] = (), failure: str | None = None, scrub: bool = True
    ) -> list[SequenceEffect]:
        """Run the step in flight and commit it. ``errors``: sequences whose row fails; ``failure``: fail | lost."""
        plan, runs = self.in_flight.pop(instance)
        bad = {index: "bad row" for index, row in enumerate(plan.rows) if row.sequence_id in errors}
        result: BatchResult | BatchFailure
        if failure is None:
            result = self.models[instance].run(plan, errors=bad, scrub=scrub, step_ns=5)
        else:
            result = BatchFailure(plan_id=plan.plan_id, error="no step", instance_lost=failure == "lost")
        effects = self.batcher.commit(plan, result, self.now_ns)
        for run in runs:
            run.in_flight = False
        if failure == "lost":
            self._check_loss(instance, runs, effects)
            return effects
        expected = iter(effects)
        for index, (row, run) in enumerate(zip(plan.rows, runs, strict=True)):
            ran = result if isinstance(result, BatchResult) and index not in bad else None
            self._check_row(row, run, ran, expected)
        assert next(expected, None) is None, "effects without a row"
        if isinstance(result, BatchResult):
            for slot in result.scrubbed:
                del self.quarantined[plan.instance, slot]
        for slot in set(plan.scrub) - set(result.scrubbed if isinstance(result, BatchResult) else ()):
            self.quarantined[plan.instance, slot] = self.now_ns + self.config.scrub_retry_ns
        return effects

    def lose(self, instance: int) -> list[SequenceEffect]:
        """The instance dies, in a step or not."""
        was_lost = instance in self.lost
        plan, runs = self.in_flight.pop(instance, (None, []))
        effects = self.batcher.lose_instance(InstanceIndex(instance), "died", self.now_ns)
        if was_lost:
            assert not effects
            return effects
        if plan is not None:
            self.orphans.setdefault(instance, []).append(plan)
        for run in runs:
            run.in_flight = False
        self._check_loss(instance, runs, effects)
        return effects

    def late(self, instance: int) -> None:
        """The result of the step in which the instance died comes after all: nobody may hear of it."""
        plan = self.orphans[instance].pop(0)
        stale_before = self.batcher.stats().stale_results
        assert self.batcher.commit(plan, AccumulatorModel(self.config.slots).run(plan), self.now_ns) == []
        assert self.batcher.stats().stale_results == stale_before + len(plan.rows)

    def restore(self, instance: int) -> None:
        """A lost instance runs again, its memory holding anything."""
        self.batcher.instance_restored(InstanceIndex(instance), self.now_ns)
        self.models[instance] = AccumulatorModel(self.config.slots)
        self.lost.remove(instance)

    def expire(self) -> list[SequenceId]:
        """Expire; exactly the sequences that have been idle long enough get an END of the batcher's own."""
        limit_ns = self.config.idle_timeout_ns
        idle = [run for run in self.live.values() if not run.in_flight and not self.is_able(run)]
        due = [run for run in idle if limit_ns and run.alive_at_ns + limit_ns <= self.now_ns]
        deadline_ns = self.batcher.next_deadline_ns()
        expired = self.batcher.expire(self.now_ns)
        assert set(expired) == {run.name for run in due}
        assert not expired or (deadline_ns is not None and deadline_ns <= self.now_ns)
        for name in expired:
            run = self.live[name]
            run.is_expired = True
            run.marks.append((len(run.sent), PortionKind.END))
            run.mark_arrivals.append(self.now_ns)
            self._line_up(run)
        return expired

    # What must be true

    def check(self) -> None:
        """Everything that holds between verbs."""
        stats = self.batcher.stats()
        assert stats.live == len(self.live)
        assert stats.started == self.n_runs
        assert sum(stats.ended.values()) == self.n_terminal
        assert stats.live + self.n_terminal == self.n_runs
        for index, lane in enumerate(stats.instances):
            held = {run.name for run in self.live.values() if run.instance == index}
            leaving = [run for run in self.in_flight.get(index, (None, []))[1] if run.terminal]
            quarantined = [place for place in self.quarantined if place[0] == index]
            assert lane.slots_held == len(held) + len(leaving)
            assert lane.slots_quarantined == len(quarantined)
            assert lane.is_lost == (index in self.lost)
        places = [run.place[0] for run in self.live.values() if run.place]
        assert len(places) == len(set(places)), "a slot with two tenants"
        assert not set(places) & set(self.quarantined), "a tenant in a quarantined slot"
        assert stats.queued_samples == sum(self.queued(run) for run in self.live.values())
        assert stats.ready_rows == sum(self.is_able(run) for run in self.live.values())
        assert self.batcher.free_slots() == sum(self.free_by_instance())
        for run in self.live.values():
            if not run.is_closed:
                assert self.batcher.room(SequenceId(run.name)) == self.config.max_queued_samples - self.queued(run)

    def rows(self, run: Run) -> list[SoloRow]:
        """The rows the sequence must get for what was sent so far."""
        config = self.config
        return solo_rows(
            run.sent, run.marks, tick_samples=config.tick_samples, lookahead_samples=config.lookahead_samples
        )

    def next_row(self, run: Run) -> SoloRow | None:
        """The next row to be planned."""
        rows = self.rows(run)
        return rows[run.n_planned] if run.n_planned < len(rows) else None

    def queued(self, run: Run) -> int:
        """Samples that no row has consumed."""
        rows = self.rows(run)[: run.n_planned]
        return len(run.sent) - max((row.end_sample for row in rows if row.kind is not PortionKind.FINALIZE), default=0)

    def free_by_instance(self) -> list[int]:
        """Free slots of each instance that takes sequences."""
        free = [self.config.slots] * self.config.instances
        for run in self.live.values():
            assert run.instance is not None
            free[run.instance] -= 1
        for instance, (_, runs) in self.in_flight.items():
            free[instance] -= sum(run.terminal is not None for run in runs)
        for instance, _ in self.quarantined:
            free[instance] -= 1
        return [0 if index in self.lost else count for index, count in enumerate(free)]

    def is_able(self, run: Run) -> bool:
        """Whether a row of it can be planned."""
        return not run.in_flight and self.next_row(run) is not None

    def ready_at_ns(self, run: Run) -> int:
        """When the last sample, or the mark, of its next row arrived."""
        row = self.next_row(run)
        assert row is not None
        if row.kind is not PortionKind.TICK:
            n_marks = sum(each.kind is not PortionKind.TICK for each in self.rows(run)[: run.n_planned])
            return run.mark_arrivals[n_marks]
        return next(at_ns for n_sent, at_ns in run.arrivals if n_sent >= row.end_sample)

    def due_instances(self) -> set[int]:
        """Instances that must get a step now: for rows, or for a slot in doubt that may be scrubbed."""
        due: set[int] = set()
        for instance in range(self.config.instances):
            if instance in self.lost or instance in self.in_flight:
                continue
            tenants = [run for run in self.live.values() if run.instance == instance]
            ages_ns = [self.now_ns - self.ready_at_ns(run) for run in tenants if self.is_able(run)]
            is_full = len(ages_ns) >= min(self.config.max_batch, len(tenants))
            if ages_ns and (is_full or max(ages_ns) >= self.config.max_delay_ns):
                due.add(instance)
            if self._scrub_due(instance):
                due.add(instance)
        return due

    def is_quiet(self) -> bool:
        """Whether neither ``plan`` nor ``expire`` may have anything to do now."""
        deadline_ns = self.batcher.next_deadline_ns()
        return deadline_ns is None or deadline_ns > self.now_ns

    def _scrub_due(self, instance: int) -> set[int]:
        return {slot for (where, slot), at_ns in self.quarantined.items() if where == instance and at_ns <= self.now_ns}

    def _try_offer(self, chunk: Chunk) -> str:
        try:
            self.batcher.offer(chunk, self.now_ns)
        except MoorageError as error:
            return error.code
        return "ok"

    def _refusal_due(self, name: str, n_samples: int, *, start: bool, finalize: bool) -> set[str]:
        run = self.live.get(name)
        if start and run is not None:
            return {"duplicate_sequence"}
        if start:
            too_long = {"queue_full"} if n_samples > self.config.max_queued_samples else set()
            return too_long if any(self.free_by_instance()) else too_long | {"capacity_exceeded"}
        if run is None:
            return {"sequence_ended" if name in self.gone else "unknown_sequence"}
        if run.is_closed:
            return {"sequence_ended"}
        n_done = sum(row.kind is not PortionKind.TICK for row in self.rows(run)[: run.n_planned])
        has_no_room = n_samples > self.config.max_queued_samples - self.queued(run)
        has_no_mark = finalize and len(run.marks) - n_done >= self.config.max_queued_marks
        return {"queue_full"} if has_no_room or has_no_mark else set()

    def _opened(self, run: Run, free_before: list[int]) -> None:
        self.n_runs += 1
        self.live[run.name] = run
        self.gone.pop(run.name, None)
        after = [lane.slots - lane.slots_held - lane.slots_quarantined for lane in self.batcher.stats().instances]
        took = [index for index, free in enumerate(free_before) if free and after[index] == free - 1]
        assert took == [free_before.index(max(free_before))], "not the instance with most free slots"
        run.instance = took[0]

    def _line_up(self, run: Run) -> None:
        if self.is_able(run):
            self.n_turns += 1
            run.turn = self.n_turns

    def _check_plan(self, plan: BatchPlan) -> None:
        assert plan.planned_at_ns == self.now_ns
        assert plan.rows or plan.scrub, "a step for nothing"
        assert set(plan.scrub) == self._scrub_due(plan.instance)
        able = [run for run in self.live.values() if run.instance == plan.instance and self.is_able(run)]
        able.sort(key=lambda run: run.turn)
        assert [row.sequence_id for row in plan.rows] == [run.name for run in able[: self.config.max_batch]]
        assert len({row.slot for row in plan.rows}) == len(plan.rows), "a slot twice in a step"
        runs = able[: len(plan.rows)]
        for row, samples, run in zip(plan.rows, plan.audio, runs, strict=True):
            self._check_planned_row(plan.instance, row, samples, run)
        for run in able[len(plan.rows) :]:
            run.passed_over += 1
            assert run.passed_over < -(-self.config.slots // self.config.max_batch), "a row waits without bound"
        self.in_flight[plan.instance] = (plan, runs)

    def _check_planned_row(self, instance: InstanceIndex, row: BatchRow, samples: Samples, run: Run) -> None:
        expected = self.next_row(run)
        assert expected is not None
        assert row.ready_at_ns == self.ready_at_ns(run)
        assert row.flush == (expected.kind is not PortionKind.TICK)
        assert row.end == (expected.kind is PortionKind.END)
        assert row.start == (run.n_planned == 0)
        assert (row.first_sample, row.n_samples) == (expected.first_sample, expected.end_sample - expected.first_sample)
        assert samples.dtype == np.float32
        assert samples.tolist() == run.sent[expected.first_sample : expected.end_sample]
        place = ((instance, row.slot), row.generation)
        assert run.place in (None, place), "moved"
        run.place = place
        run.n_planned += 1
        run.passed_over = 0
        run.in_flight = True

    def _check_row(
        self, row: BatchRow, run: Run, result: BatchResult | None, effects: Iterator[SequenceEffect]
    ) -> None:
        """One row's part of a commit. ``result`` None: the row failed."""
        assert run.place is not None
        if result is None:
            self.quarantined[run.place[0]] = self.now_ns
        if run.terminal is not None:
            return
        effect = next(effects)
        if result is None:
            assert isinstance(effect, SequenceLost)
            assert isinstance(effect.error, StepFailed)
            self._terminal(run, effect)
            return
        assert isinstance(effect, RowCompleted)
        assert effect.row == row
        assert effect.output == self.rows(run)[run.n_completed].reading, "not what the sequence would hear alone"
        assert (effect.batch_size, effect.step_ns) == (len(result.rows), result.step_ns)
        assert effect.queue_ns >= 0
        run.n_completed += 1
        run.alive_at_ns = self.now_ns
        self._line_up(run)
        if row.end:
            ended = next(effects)
            if run.is_expired:
                assert isinstance(ended, SequenceLost)
                assert isinstance(ended.error, IdleTimeout)
            else:
                assert isinstance(ended, SequenceEnded)
                assert ended.cause is CloseCause.END
            assert run.n_completed == len(self.rows(run)), "ended before everything was answered"
            self._terminal(run, ended)

    def _check_loss(self, instance: int, in_step: list[Run], effects: list[SequenceEffect]) -> None:
        """Everything there fails, the step's rows first; every slot is in doubt."""
        there = [run for run in self.live.values() if run.instance == instance]
        names = [_name(effect) for effect in effects]
        first = [run.name for run in in_step if run.terminal is None]
        assert names[: len(first)] == first
        assert sorted(names) == sorted(run.name for run in there)
        for effect in effects:
            assert isinstance(effect, SequenceLost)
            assert isinstance(effect.error, InstanceFailed)
            self._terminal(self.live[effect.sequence_id], effect)
        self.lost.add(instance)
        for slot in range(self.config.slots):
            self.quarantined[InstanceIndex(instance), SlotIndex(slot)] = self.now_ns

    def _terminal(self, run: Run, effect: SequenceEffect) -> None:
        assert not isinstance(effect, RowCompleted)
        assert run.terminal is None, "two terminal effects"
        assert effect.sequence_id == run.name
        assert effect.received_samples == len(run.sent)
        run.terminal = effect
        self.n_terminal += 1
        self.gone[run.name] = self.live.pop(run.name)


def _speech(voice: int, position: int, n_samples: int) -> Samples:
    """Samples that tell whose they are: no two voices share a value at a position."""
    return np.arange(position, position + n_samples, dtype=np.float32) % 97 + 100 * voice


def _chunk(name: str, samples: Samples, start: bool, finalize: bool, end: bool) -> Chunk:
    return Chunk(sequence_id=SequenceId(name), samples=samples, start=start, finalize=finalize, end=end)


def _name(effect: SequenceEffect) -> str:
    return effect.row.sequence_id if isinstance(effect, RowCompleted) else effect.sequence_id
