"""Where calls with tensors wait for their answers: a desk over each kind of driver. Runs on the event loop."""

import asyncio
import json
from collections.abc import Iterator
from itertools import count

from server.effects import (
    RequestCompleted,
    RequestEffect,
    RequestFailed,
    RowCompleted,
    SequenceEffect,
    SequenceEnded,
    SequenceLost,
)
from server.engine.request_driver import RequestDriver
from server.engine.sequence_driver import SequenceDriver
from server.engine.served_model import SequenceTurn
from server.errors import MoorageError, SequenceAlreadyEnded, StepFailed
from server.figures.step_recorder import StepRecorder
from server.ids import RequestId, SequenceId
from server.plan import CorrelationId, Request, Tensors, Turn


def sequence_id_of(correlation_id: CorrelationId) -> SequenceId:
    """Of the sequence that clients call so, as JSON has it in messages too: 42 and "42" are two."""
    return SequenceId(json.dumps(correlation_id))


class RequestDesk:
    """Requests that have nothing to do with each other.

    Args:
        driver: Of a copy of a model without state.
    """

    def __init__(self, driver: RequestDriver) -> None:
        self._driver = driver
        self._ids = count(1)

    async def infer(self, tensors: Tensors, priority: int, timeout_ns: int | None) -> Tensors:
        """One request; cancelling the call cancels it. Raises as ``ServedModel.infer``."""
        future: asyncio.Future[Tensors] = asyncio.get_running_loop().create_future()
        request_id = RequestId(next(self._ids))
        request = Request(request_id=request_id, payload=tensors, priority=priority, timeout_ns=timeout_ns)
        self._driver.offer(request, lambda effect: _settle(future, _answer(effect)))
        self._driver.run()
        try:
            return await future
        except asyncio.CancelledError:
            self._driver.cancel(request_id)
            self._driver.run()
            raise

    def fail_all(self, error: MoorageError) -> None:
        """Whoever waits is told why."""
        self._driver.fail_all(error)


class TurnDesk:
    """The turns of sequences. A sequence that is over fails those of its turns that are not answered.

    Args:
        recorder: Counts how turns ended.
        ids: Of turns, those of no other desk of the model.
    """

    def __init__(self, recorder: StepRecorder, ids: Iterator[int]) -> None:
        self._recorder = recorder
        self._driver: SequenceDriver | None = None
        self._successor: TurnDesk | None = None
        self._ids = ids
        self._waiting: dict[RequestId, asyncio.Future[Tensors]] = {}
        self._turns: dict[SequenceId, set[RequestId]] = {}
        """Of each live sequence those that are not answered."""

    def use(self, driver: SequenceDriver) -> None:
        """The driver whose effects come to ``deal``."""
        self._driver = driver

    def has(self, sequence_id: SequenceId) -> bool:
        """Whether the sequence is live here."""
        return sequence_id in self._turns

    async def infer(self, tensors: Tensors, turn: SequenceTurn, priority: int) -> Tensors:
        """One turn; cancelling the call cancels its sequence. Raises as ``ServedModel.infer``."""
        sequence_id, request_id = sequence_id_of(turn.correlation_id), RequestId(next(self._ids))
        future: asyncio.Future[Tensors] = asyncio.get_running_loop().create_future()
        self._offer(
            Turn(
                sequence_id=sequence_id,
                request_id=request_id,
                correlation_id=turn.correlation_id,
                tensors=tensors,
                start=turn.start,
                end=turn.end,
                priority=priority,
            ),
            future,
        )
        try:
            return await future
        except asyncio.CancelledError:
            desk = self._desk_of(request_id)
            desk._waiting.pop(request_id, None)
            desk.cancel(sequence_id)
            raise

    def hand_over(self, desk: "TurnDesk") -> None:
        """Those who wait for a slot here go on there, with their turns, if one can wait there."""
        before, after = self._driver, desk._driver
        assert before is not None, "it is open"
        assert after is not None, "the other is too"
        if not after.has_line:
            return
        self._successor = desk
        line = before.hand_over()
        for sequence_id in line.sequence_ids:
            turns = self._turns.pop(sequence_id)
            desk._turns[sequence_id] = turns
            desk._waiting |= {each: self._waiting.pop(each) for each in turns & self._waiting.keys()}
        after.take_over(line)

    def cancel(self, sequence_id: SequenceId) -> None:
        """The sequence's caller has left: all of its turns are told so. Not live: nothing."""
        if self._driver is not None and sequence_id in self._turns:
            self._driver.cancel(sequence_id)
            self._driver.run()

    def leave_when_answered(self, sequence_id: SequenceId) -> None:
        """The sequence goes on elsewhere; here it ends once what it has asked is answered."""
        waiting = self._turns.get(sequence_id, set()) & self._waiting.keys()
        if not waiting:
            self.cancel(sequence_id)
        else:
            self._waiting[max(waiting)].add_done_callback(lambda _: self.cancel(sequence_id))

    def deal(self, effects: list[SequenceEffect]) -> None:
        """What happened, in order."""
        for effect in effects:
            match effect:
                case RowCompleted(row=row, output=output):
                    assert row.request_id is not None, "every row here is a turn"
                    self._turns.get(row.sequence_id, set()).discard(row.request_id)
                    is_answer = isinstance(output, Tensors)
                    answer = output if is_answer else StepFailed(f"the model answered {type(output).__name__}")
                    self._tell(row.request_id, answer)
                case SequenceEnded(sequence_id=sequence_id):
                    self._end(sequence_id, SequenceAlreadyEnded("the sequence was ended by its caller"))
                case SequenceLost(sequence_id=sequence_id, error=error):
                    self._end(sequence_id, error)

    def fail_all(self, error: MoorageError) -> None:
        """Whoever waits is told why."""
        for sequence_id in list(self._turns):
            self._end(sequence_id, error)

    def _offer(self, turn: Turn, future: asyncio.Future[Tensors]) -> None:
        assert self._driver is not None, "the desk is open"
        self._driver.offer(turn)
        self._waiting[turn.request_id] = future
        self._turns.setdefault(turn.sequence_id, set()).add(turn.request_id)
        self._driver.run_if_due()

    def _desk_of(self, request_id: RequestId) -> "TurnDesk":
        """Where the turn waits: here, or where its sequence has gone. Nowhere: here."""
        desk: TurnDesk | None = self
        while desk is not None and request_id not in desk._waiting:
            desk = desk._successor
        return desk or self

    def _end(self, sequence_id: SequenceId, error: MoorageError) -> None:
        for request_id in sorted(self._turns.pop(sequence_id, set())):
            self._tell(request_id, error)

    def _tell(self, request_id: RequestId, answer: object) -> None:
        outcome = answer.code if isinstance(answer, MoorageError) else "completed"
        future = self._waiting.pop(request_id, None)
        self._recorder.answered("cancelled" if future is None else outcome)
        if future is not None:
            _settle(future, answer)


def _settle(future: asyncio.Future[Tensors], answer: object) -> None:
    if future.done():
        return
    if isinstance(answer, MoorageError):
        future.set_exception(answer)
    else:
        assert isinstance(answer, Tensors), "an answer is tensors or an error"
        future.set_result(answer)


def _answer(effect: RequestEffect) -> object:
    if isinstance(effect, RequestCompleted):
        is_answer = isinstance(effect.output, Tensors)
        return effect.output if is_answer else StepFailed(f"the model answered {type(effect.output).__name__}")
    return effect.error if isinstance(effect, RequestFailed) else SequenceAlreadyEnded("the request was cancelled")
