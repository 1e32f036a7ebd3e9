"""Sending and receiving side by side: who is waited for, and which failure is told."""

import asyncio

import pytest

from clients.connection import ConnectionFailed
from clients.exchange import exchange


class Side:
    """One side: waits until it is let go, then fails or ends."""

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault
        self.go = asyncio.Event()
        self.is_done = False
        self.is_cancelled = False

    async def run(self) -> None:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        if self._fault is not None:
            raise self._fault
        self.is_done = True


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["sender", "receiver"])
async def test_both_are_waited_for(first: str) -> None:
    sides = {"sender": Side(), "receiver": Side()}
    both = asyncio.create_task(exchange(sides["sender"].run(), sides["receiver"].run()))
    sides.pop(first).go.set()
    await turns()
    assert not both.done()
    (last,) = sides.values()
    last.go.set()
    await both
    assert last.is_done


async def test_a_sender_that_fails_by_itself_ends_both() -> None:
    sender, receiver = Side(ValueError("file")), Side()
    sender.go.set()
    with pytest.raises(ValueError, match="file"):
        await exchange(sender.run(), receiver.run())
    assert receiver.is_cancelled


async def test_a_sender_that_lost_the_connection_waits_for_what_the_service_says_of_it() -> None:
    sender, receiver = Side(ConnectionFailed("lost")), Side(ConnectionFailed("too slow"))
    both = asyncio.create_task(exchange(sender.run(), receiver.run()))
    sender.go.set()
    await turns()
    assert not both.done()
    receiver.go.set()
    with pytest.raises(ConnectionFailed, match="too slow"):
        await both


async def test_a_receiver_that_fails_ends_both() -> None:
    sender, receiver = Side(), Side(ConnectionFailed("1011"))
    receiver.go.set()
    with pytest.raises(ConnectionFailed, match="1011"):
        await exchange(sender.run(), receiver.run())
    assert sender.is_cancelled


async def test_a_cancelled_exchange_leaves_no_task() -> None:
    sender, receiver = Side(), Side()
    both = asyncio.create_task(exchange(sender.run(), receiver.run()))
    await turns()
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
    assert sender.is_cancelled
    assert receiver.is_cancelled
