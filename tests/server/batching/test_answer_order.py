"""Answers in the order of the questions."""

from server.batching.answer_order import AnswerOrder
from server.effects import RequestEffect, RequestFailed
from server.errors import StepFailed
from server.ids import RequestId


def answer(number: int) -> RequestEffect:
    return RequestFailed(request_id=RequestId(number), error=StepFailed("no"))


def told(effects: list[RequestEffect]) -> list[int]:
    return [effect.request_id for effect in effects]


def order_of(n_requests: int) -> AnswerOrder:
    order = AnswerOrder()
    for number in range(1, n_requests + 1):
        order.expect(RequestId(number))
    return order


def test_an_answer_waits_for_those_before_it() -> None:
    order = order_of(3)
    assert told(order.answer(answer(2))) == []
    assert (order.n_held, RequestId(2) in order) == (1, True)
    assert told(order.answer(answer(1))) == [1, 2]
    assert (order.n_held, RequestId(2) in order) == (0, False)
    assert told(order.answer(answer(3))) == [3]


def test_one_that_leaves_holds_nothing_back() -> None:
    order = order_of(3)
    order.answer(answer(2))
    order.answer(answer(3))
    assert told(order.leave(RequestId(2))) == []
    assert order.n_held == 1
    assert told(order.leave(RequestId(1))) == [3]
    assert told(order.leave(RequestId(1))) == []
    assert order.n_held == 0
