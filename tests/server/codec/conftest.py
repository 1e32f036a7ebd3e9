"""One pool for a module: starting a codec process takes a third of a second."""

from collections.abc import AsyncIterator

import pytest_asyncio

from server.codec.pool import CodecPool


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[CodecPool]:
    pool = CodecPool()
    yield pool
    try:
        assert pool.stats().lost_processes == 0
        assert pool.stats().streams == 0
    finally:
        await pool.close()
