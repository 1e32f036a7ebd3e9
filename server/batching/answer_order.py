"""Holds answers back until everyone who asked before has been answered. Pure."""

from collections import OrderedDict

from server.effects import RequestEffect
from server.ids import RequestId


class AnswerOrder:
    """The requests that are not answered yet, in the order in which they were offered."""

    def __init__(self) -> None:
        self._answers: OrderedDict[RequestId, RequestEffect | None] = OrderedDict()
        self._n_held = 0

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._answers

    @property
    def n_held(self) -> int:
        """Answers that are there and not told."""
        return self._n_held

    def expect(self, request_id: RequestId) -> None:
        """A request was offered; its answer comes behind those of all that wait now."""
        self._answers[request_id] = None

    def answer(self, effect: RequestEffect) -> list[RequestEffect]:
        """A request has its answer: what is told now, in order."""
        self._answers[effect.request_id] = effect
        self._n_held += 1
        return self._tell()

    def leave(self, request_id: RequestId) -> list[RequestEffect]:
        """A request ends in another way, told by itself: what its place held back. Not expected: nothing."""
        if self._answers.pop(request_id, None) is not None:
            self._n_held -= 1
        return self._tell()

    def _tell(self) -> list[RequestEffect]:
        told: list[RequestEffect] = []
        while self._answers and (effect := next(iter(self._answers.values()))) is not None:
            self._answers.popitem(last=False)
            told.append(effect)
        self._n_held -= len(told)
        return told
