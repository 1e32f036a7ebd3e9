"""How long a client may take over its body, and what it did wrong if it is not one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from server.clock import Clock
from server.wire.request_errors import BadRequest, BodyTooSlow


class Patience:
    """With one request whose body is worked on as it arrives. Only time in which there was nothing to work on counts:
    ``limit_s`` of it in a row, and no more in all than that and what its audio lasts. So who sends at least as fast as
    one speaks is never too slow.

    Args:
        limit_s: Time for a body without audio.
        clock: Time.
    """

    def __init__(self, limit_s: float, clock: Clock) -> None:
        self._limit_s = limit_s
        self._left_s = limit_s
        self._clock = clock

    def earn(self, audio_s: float) -> None:
        """So much audio has come."""
        self._left_s += audio_s

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None, None]:
        """While a part of the body is awaited.

        Raises:
            BodyTooSlow: It did not come in time.
            BadRequest: It broke off, or is not what its header says.
        """
        began_ns = self._clock.now_ns()
        try:
            async with asyncio.timeout(min(self._limit_s, self._left_s)):
                yield
        except TimeoutError:
            raise BodyTooSlow(f"the body comes too slowly: it was waited for {self._limit_s:g} s") from None
        except (RequestPayloadError, HttpProcessingError, web.HTTPException, ValueError, RuntimeError) as error:
            said = error.message if isinstance(error, HttpProcessingError) else str(error)
            raise BadRequest(f"the body cannot be read: {said}"[:300]) from None
        finally:
            self._left_s -= (self._clock.now_ns() - began_ns) / 1e9
