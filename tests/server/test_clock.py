"""The system's clock is monotonic and its timers come back on the loop."""

import asyncio

from server.clock import SystemClock


async def test_a_timer_comes_back_after_the_call_that_armed_it() -> None:
    clock = SystemClock()
    fired: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    deadline_ns = clock.now_ns() - 1
    clock.call_at(deadline_ns, lambda: fired.set_result(clock.now_ns()))
    assert not fired.done()
    assert await asyncio.wait_for(fired, 10.0) >= deadline_ns


async def test_a_cancelled_timer_does_not_fire() -> None:
    clock = SystemClock()
    fired: list[int] = []
    clock.call_at(clock.now_ns(), lambda: fired.append(1)).cancel()
    later: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    clock.call_at(clock.now_ns() + 1_000_000, lambda: later.set_result(None))
    await asyncio.wait_for(later, 10.0)
    assert fired == []
