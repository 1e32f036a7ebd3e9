"""How long a client may take: only waiting counts, and audio that has come earns more of it."""

import asyncio

import pytest
from aiohttp.http import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from server.rest.patience import Patience
from server.wire.request_errors import BadRequest, BodyTooSlow
from tests.support.manual_clock import ManualClock

SECOND_NS = 1_000_000_000


async def wait(patience: Patience, clock: ManualClock, waited_s: float) -> None:
    """A part of the body that comes after so long."""
    async with patience.waiting():
        clock.advance(round(waited_s * SECOND_NS))
        await asyncio.sleep(0)


async def test_all_waiting_together_is_bounded() -> None:
    clock = ManualClock()
    patience = Patience(10.0, clock)
    for _ in range(3):
        await wait(patience, clock, 3.5)
    with pytest.raises(BodyTooSlow, match="it was waited for 10 s"):
        await wait(patience, clock, 0.0)


async def test_time_between_is_not_the_clients() -> None:
    clock = ManualClock()
    patience = Patience(10.0, clock)
    await wait(patience, clock, 6.0)
    clock.advance(100 * SECOND_NS)
    await wait(patience, clock, 3.0)


async def test_audio_earns_its_own_length() -> None:
    clock = ManualClock()
    patience = Patience(10.0, clock)
    for _ in range(20):
        await wait(patience, clock, 5.0)
        patience.earn(5.0)


async def test_waiting_in_a_row_is_bounded_whatever_was_earned() -> None:
    patience = Patience(0.01, ManualClock())
    patience.earn(1000.0)
    with pytest.raises(BodyTooSlow):
        async with patience.waiting():
            await asyncio.Event().wait()


@pytest.mark.parametrize("error", [RequestPayloadError("why"), HttpProcessingError(message="why"), ValueError("why")])
async def test_a_broken_body_is_the_clients_fault(error: Exception) -> None:
    with pytest.raises(BadRequest, match=r"the body cannot be read: .*why"):
        async with Patience(1.0, ManualClock()).waiting():
            raise error
