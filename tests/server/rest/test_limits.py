import asyncio

import pytest

from server.errors import CapacityExceeded
from server.rest.limits import RequestLimit


async def test_so_many_and_no_more() -> None:
    limit = RequestLimit(2)
    with limit.one_more(), limit.one_more():
        assert limit.active == 2
        with pytest.raises(CapacityExceeded, match="all 2 requests"), limit.one_more():
            pass
        assert limit.active == 2
    assert limit.active == 0


async def test_one_that_fails_gives_its_place_back() -> None:
    limit = RequestLimit(1)
    with pytest.raises(ZeroDivisionError), limit.one_more():
        raise ZeroDivisionError
    with limit.one_more():
        assert limit.active == 1


async def test_all_done_waits_for_the_last() -> None:
    limit = RequestLimit(2)
    await limit.all_done()
    with limit.one_more():
        with limit.one_more():
            waiting = asyncio.create_task(limit.all_done())
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 1)
