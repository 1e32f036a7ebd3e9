"""A sequence batcher with accumulators for instances, and a plain reference of what must be true after every verb.

The reference is written from the contract alone: which rows a sequence must get (``runs``), which of them go next
(``expected_step``), who holds which slot, who waits for one, what may be in flight (``bench_state``). Every verb checks
what it got against it, so a test only has to drive. This is the caller's side; ``bench_steps`` is the driver's.
"""

from server.batching.sample_queue import PortionKind
from server.batching.sequence_batcher import DuplicateStart
from server.effects import SequenceEffect, SequenceEnded, SequenceLost
from server.errors import BacklogTimeout, IdleTimeout, MoorageError
from server.events import CloseCause
from server.ids import RequestId, SequenceId
from server.plan import Chunk, Tensors, Turn
from tests.support.bench_steps import BenchSteps
from tests.support.runs import Run, SentTurn, Shape, speech, turn_values


class Bench(BenchSteps):
    """Drives a batcher and checks it; the attributes are for the test to read."""

    def offer(
        self,
        name: str,
        n_samples: int = 0,
        *,
        start: bool = False,
        finalize: bool = False,
        end: bool = False,
        solo: bool = False,
        gives_way: bool = False,
        priority: int = 0,
    ) -> str:
        """Offer the sequence's next samples; "ok", or the code of the refusal, which must be the one due."""
        due = self._refusal_due(name, start=start)
        if not due or due == {"capacity_exceeded"}:
            due = due | self._too_much(name, n_samples, start=start, finalize=finalize)
        run = self._new_run(name, priority, solo=solo, gives_way=gives_way) if start else self.live.get(name)
        position = 0 if run is None else len(run.sent)
        values = speech(1 if run is None else run.voice, position, n_samples)
        chunk = Chunk(
            sequence_id=SequenceId(name),
            samples=values,
            start=start,
            finalize=finalize,
            end=end,
            solo=solo,
            gives_way=gives_way,
            priority=priority,
        )
        code = self._try_offer(chunk, due)
        if code != "ok":
            return code
        assert run is not None
        was_able = self.is_able(run)
        run.sent += [float(value) for value in values]
        run.marks += [(len(run.sent), PortionKind.FINALIZE)] * finalize + [(len(run.sent), PortionKind.END)] * end
        run.mark_arrivals += [self.now_ns] * (finalize + end)
        run.arrivals.append((len(run.sent), self.now_ns))
        self._taken(run, start=start, was_able=was_able)
        return "ok"

    def turn(
        self,
        name: str,
        value: int = 1,
        *,
        start: bool = False,
        end: bool = False,
        shape: Shape = (1,),
        priority: int = 0,
        n_rows: int = 1,
    ) -> str:
        """Offer a turn; "ok", or the code of the refusal, which must be the one due."""
        self.n_numbers += 1
        run = self.live.get(name)
        restarts = run is not None and start and self.config.duplicate_start is DuplicateStart.RESTART
        due = {"bad_tensor"} if n_rows != 1 else self._refusal_due(name, start=start, restarts=restarts)
        if run is not None and not due and run.queued(self.config) >= self.config.max_queued_turns:
            due = {"queue_full"}
        turn = Turn(
            sequence_id=SequenceId(name),
            request_id=RequestId(self.n_numbers),
            correlation_id=name,
            tensors=Tensors(arrays={"INPUT": turn_values(value, shape)}, n_rows=n_rows),
            start=start,
            end=end,
            priority=priority,
        )
        code = self._try_offer(turn, due)
        if code != "ok":
            return code
        run = run or self._new_run(name, priority)
        was_able = self.is_able(run)
        self.n_restarts += restarts
        run.turns.append(
            SentTurn(number=self.n_numbers, value=value, shape=shape, start=start, end=end, at_ns=self.now_ns)
        )
        self._taken(run, start=start and not restarts, was_able=was_able)
        return "ok"

    def touch(self, name: str) -> str:
        """Keep-alive; "ok" or the code of the refusal."""
        try:
            self.batcher.touch(SequenceId(name), self.now_ns)
        except MoorageError as error:
            assert name not in self.live
            return error.code
        self._is_alive(self.live[name])
        return "ok"

    def cancel(self, name: str) -> list[SequenceEffect]:
        """Cancel; exactly one terminal effect if the sequence was live."""
        effects = self.batcher.cancel(SequenceId(name), self.now_ns)
        run = self.live.get(name)
        if run is None:
            assert effects == []
            return effects
        ended = effects[0]
        assert isinstance(ended, SequenceEnded)
        assert ended.cause is CloseCause.CANCELLED
        self._terminal(run, ended)
        self._check_placements(effects[1:])
        return effects

    def expire(self) -> tuple[list[str], list[SequenceEffect]]:
        """Expire: exactly the sequences that have been idle long enough get an END of the batcher's own (those of
        turns are lost), and exactly those that have waited too long for a slot are lost. Returns who was idle.
        """
        limit_ns, wait_ns = self.config.idle_timeout_ns, self.config.backlog_wait_ns
        idle = [run for run in self.placed() if not run.in_flight and not self.is_able(run)]
        idle = [run for run in idle if limit_ns and run.alive_at_ns + limit_ns <= self.now_ns]
        idle.sort(key=lambda run: run.alive_order)
        late = [run for run in self.waiting() if wait_ns and run.queued_at_ns + wait_ns <= self.now_ns]
        deadline_ns = self.batcher.next_deadline_ns()
        effects = self.batcher.expire(self.now_ns)
        assert not idle + late or (deadline_ns is not None and deadline_ns <= self.now_ns)
        lost = [effect for effect in effects if isinstance(effect, SequenceLost)]
        ended_now = idle if self.config.takes_turns else []
        assert sorted(effect.sequence_id for effect in lost) == sorted(run.name for run in late + ended_now)
        for effect in lost:
            run = self.live[effect.sequence_id]
            assert isinstance(effect.error, BacklogTimeout if run in late else IdleTimeout)
            self._terminal(run, effect)
        for run in [] if self.config.takes_turns else idle:
            run.is_expired = True
            run.marks.append((len(run.sent), PortionKind.END))
            run.mark_arrivals.append(self.now_ns)
            self._line_up(run)
        self.n_idle += len(idle)
        self._check_placements([effect for effect in effects if not isinstance(effect, SequenceLost)])
        return [run.name for run in idle], effects

    # Offers

    def _new_run(self, name: str, priority: int, *, solo: bool = False, gives_way: bool = False) -> Run:
        n_levels = self.config.backlog_levels
        level = min(priority or n_levels, n_levels) - 1
        return Run(name=name, voice=self.n_runs + 1, solo=solo, gives_way=gives_way, level=level)

    def _try_offer(self, item: Chunk | Turn, due: set[str]) -> str:
        code = "ok"
        try:
            self.batcher.offer(item, self.now_ns)
        except MoorageError as error:
            code = error.code
        assert (code in due) if due else (code == "ok"), f"{code}, due was {due or 'ok'}"
        return code

    def _refusal_due(self, name: str, *, start: bool, restarts: bool = False) -> set[str]:
        run = self.live.get(name)
        if start and run is not None:
            return set() if restarts else {"duplicate_sequence"}
        if start:
            n_places = self.config.backlog + self.n_giving_way()
            is_full = not any(self.free_by_instance()) and len(self.waiting()) >= n_places
            return {"capacity_exceeded"} if is_full else set()
        if run is None:
            unknown = "missing_start" if self.config.takes_turns else "unknown_sequence"
            return {"sequence_ended" if name in self.gone else unknown}
        return {"sequence_ended"} if run.is_closed else set()

    def _too_much(self, name: str, n_samples: int, *, start: bool, finalize: bool) -> set[str]:
        run = self.live.get(name)
        if start or run is None:
            return {"queue_full"} if n_samples > self.config.max_queued_samples else set()
        n_done = sum(row.flush for row in run.rows(self.config)[: run.n_planned])
        has_no_room = n_samples > self.config.max_queued_samples - run.queued(self.config)
        has_no_mark = finalize and len(run.marks) - n_done >= self.config.max_queued_marks
        return {"queue_full"} if has_no_room or has_no_mark else set()

    def _taken(self, run: Run, *, start: bool, was_able: bool) -> None:
        self._is_alive(run)
        if not start:
            if not was_able:
                self._line_up(run)
            return
        free = self.free_by_instance()
        self.n_runs += 1
        self.live[run.name] = run
        self.gone.pop(run.name, None)
        lanes = self.batcher.stats().instances
        now_free = [lane.slots - lane.slots_held - lane.slots_quarantined for lane in lanes]
        took = [index for index in self.indexes if free[index] and now_free[index] == free[index] - 1]
        if any(free):
            self._seat(run, took[0])
        else:
            assert not took
            self._queue(run)
            told = self.batcher.place_in_line(SequenceId(run.name))
            assert told is not None or self.n_giving_way()
            run.told = 0 if told is None else told.position
