"""Server-sent events of one recording, told as it is read."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from asr_model.transcript import Word
from server.errors import MoorageError
from server.rest.parts import REQUEST_ID
from server.wire.recordings import openai_answer
from server.wire.request_errors import unexpected

logger = logging.getLogger(__name__)


class EventStream:
    """Begins with the first words; then errors too are events.

    Args:
        request: Whose answer it is.
        timeout_s: Time for a client to read an event; then it is cut off.
    """

    def __init__(self, request: web.Request, timeout_s: float) -> None:
        self._request = request
        self._timeout_s = timeout_s
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "x-request-id": request[REQUEST_ID]}
        self.response = web.StreamResponse(headers=headers)
        """The answer; the last on its connection, as those of all recordings."""
        self.response.force_close()
        self._has_text = False

    @asynccontextmanager
    async def failing(self) -> AsyncGenerator[None, None]:
        """What is raised within is told as the last event, once there was a first."""
        try:
            yield
        except MoorageError as error:
            if not self.response.prepared:
                raise
            await self._fail(error)
        except ConnectionError:
            raise
        except Exception:
            if not self.response.prepared:
                raise
            logger.exception("a request failed", extra={"request_id": self._request[REQUEST_ID]})
            await self._fail(unexpected())

    async def tell(self, words: tuple[Word, ...]) -> None:
        """One piece; nothing where nothing is said."""
        if words:
            await self._send(openai_answer.delta_event(words, is_first=not self._has_text))
            self._has_text = True

    async def finish(self, pieces: list[tuple[Word, ...]], duration_s: float) -> web.StreamResponse:
        """The end of the text, and the text itself if nothing of it was told yet."""
        if not self._has_text:
            for words in pieces:
                await self.tell(words)
        await self._send(openai_answer.done_event(pieces, duration_s), is_last=True)
        return self.response

    async def _fail(self, error: MoorageError) -> None:
        await self._send(openai_answer.error_event(openai_answer.error_body(error)), is_last=True)

    async def _send(self, event: str, *, is_last: bool = False) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                if not self.response.prepared:
                    await self.response.prepare(self._request)
                await self.response.write(event.encode())
                if is_last:
                    await self.response.write_eof()
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the answer was not read") from None
