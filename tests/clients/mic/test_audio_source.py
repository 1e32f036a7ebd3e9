"""The queue between the thread of a device and the event loop."""

import asyncio
import threading

import numpy as np

from clients.mic.audio_source import BlockQueue
from clients.transcribe.audio_file import Samples


def block(value: int, n_samples: int = 10) -> Samples:
    return np.full(n_samples, value, np.float32)


async def values(queue: BlockQueue) -> list[int]:
    """Of the blocks, to the end."""
    found = []
    while (samples := await queue.get()) is not None:
        found.append(int(samples[0]))
    return found


async def test_blocks_come_in_order_from_another_thread_and_then_the_end() -> None:
    queue = BlockQueue(asyncio.get_running_loop(), 10_000_000)

    def record() -> None:
        for value in range(2_000):
            queue.put(block(value))
        queue.close()
        queue.put(block(-1))  # too late

    thread = threading.Thread(target=record)
    thread.start()
    assert await values(queue) == list(range(2_000))
    thread.join()
    assert queue.lost_samples == 0
    assert await queue.get() is None


async def test_a_reader_that_waits_is_woken() -> None:
    queue = BlockQueue(asyncio.get_running_loop(), 100)
    reading = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    threading.Thread(target=queue.put, args=(block(7),)).start()
    async with asyncio.timeout(10):
        samples = await reading
    assert samples is not None
    assert samples[0] == 7
    ending = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    threading.Thread(target=queue.close).start()
    async with asyncio.timeout(10):
        assert await ending is None


async def test_beyond_the_limit_the_oldest_is_thrown_away_and_counted() -> None:
    queue = BlockQueue(asyncio.get_running_loop(), 35)
    for value in range(6):
        queue.put(block(value))
    assert queue.lost_samples == 30
    queue.close()
    assert await values(queue) == [3, 4, 5]
    assert queue.lost_samples == 30


async def test_a_block_larger_than_the_limit_is_lost_whole() -> None:
    queue = BlockQueue(asyncio.get_running_loop(), 35)
    queue.put(block(1, 36))
    queue.put(block(2, 35))
    queue.close()
    assert await values(queue) == [2]
    assert queue.lost_samples == 36
