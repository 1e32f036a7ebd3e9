"""Sending and receiving on one connection at the same time."""

import asyncio
from collections.abc import Coroutine

from clients.connection import ConnectionFailed


async def exchange(sender: Coroutine[None, None, None], receiver: Coroutine[None, None, None]) -> None:
    """Runs both until both are done or one has failed; the other is then cancelled.

    Raises:
        Exception: What one of them raised. Where both failed by the connection, what was received says why.
    """
    sending, receiving = asyncio.create_task(sender), asyncio.create_task(receiver)
    try:
        await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_EXCEPTION)
        if sending.done() and not isinstance(sending.exception(), ConnectionFailed):
            await sending
        await receiving
        await sending
    finally:
        sending.cancel()
        receiving.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)
