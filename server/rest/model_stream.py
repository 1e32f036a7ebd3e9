"""``/v2/models/NAME/stream``: a websocket, each text message of which is one inference request, answered by one.

Whoever leaves ends the sequences that it began here.
"""

import asyncio
import json
import logging
from collections.abc import Coroutine
from typing import Final

from aiohttp import WSMsgType, web

from server.access.access import SCHEMES
from server.engine.served_model import ServedModel
from server.errors import MoorageError
from server.plan import CorrelationId
from server.rest.inference import Answer, Inference
from server.rest.parts import Route
from server.rest.refusals import kserve_refusal
from server.wire.kserve.fields import MAX_JSON_BYTES
from server.wire.kserve.infer_request import request_id_of
from server.wire.request_errors import NotSupported, error_body, unexpected

MAX_IN_FLIGHT: Final = 64
"""Requests of one connection that are not answered; then its messages are not read on."""
GOING_AWAY: Final = 1012

logger = logging.getLogger(__name__)


class ModelStreams:
    """All open streams of requests.

    Args:
        inference: Where the requests go.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._open: set[ModelStream] = set()

    def routes(self) -> list[Route]:
        """Their address."""
        path = "/v2/models/{model}/stream"
        return [Route(method="GET", path=path, handler=self.serve, refuse=kserve_refusal)]

    def wind_down(self) -> None:
        """The service is about to stop: each closes when its sequences are over."""
        for stream in self._open:
            stream.wind_down()

    async def close(self, within_s: float) -> None:
        """The service stops: all are closed, whatever they have open."""
        await asyncio.gather(*(stream.close(within_s) for stream in self._open))

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One stream, from its upgrade to its close."""
        parts = self._inference.parts
        model = self._inference.model(request.match_info["model"])
        offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        schemes = [name.strip() for name in offered if name.strip().lower() in SCHEMES]
        socket = web.WebSocketResponse(
            protocols=schemes[:1],
            compress=False,
            max_msg_size=MAX_JSON_BYTES,
            heartbeat=parts.config.server.ping_interval_s,
        )
        if not socket.can_prepare(request).ok:
            raise NotSupported("this address is a websocket: connect with a websocket client")
        await socket.prepare(request)
        stream = ModelStream(self._inference, model, socket, parts.config.server.send_timeout_s)
        self._open.add(stream)
        try:
            if parts.site.is_draining():
                stream.wind_down()
            await stream.run()
        finally:
            self._open.discard(stream)
        return socket


class ModelStream:
    """One connection."""

    def __init__(
        self, inference: Inference, model: ServedModel, socket: web.WebSocketResponse, send_timeout_s: float
    ) -> None:
        self._inference = inference
        self._model = model
        self._socket = socket
        self._send_timeout_s = send_timeout_s
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._sending = asyncio.Lock()
        self._turnstile = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sequences: set[CorrelationId] = set()
        """Begun here, and not ended."""
        self._is_winding_down = False
        self._closing: asyncio.Task[None] | None = None

    def wind_down(self) -> None:
        """Closes as soon as nothing is open."""
        self._is_winding_down = True
        self._close_if_over()

    async def run(self) -> None:
        """Until the client leaves, or nothing is open of a stream that winds down."""
        try:
            async for message in self._socket:
                await self._room.acquire()
                # tasks begin, and so come to the turnstile, in the order of their making
                if message.type is WSMsgType.TEXT:
                    self._begin(self._answer(message.data.encode(errors="surrogatepass")))
                else:
                    error = NotSupported("messages are texts here: JSON, one request each")
                    self._begin(self._tell({**error_body(error), "id": ""}))
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for correlation_id in self._sequences:
                self._model.leave(correlation_id)
            if self._closing is not None:
                await asyncio.gather(self._closing, return_exceptions=True)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and task.exception() is not None:
            logger.debug("an answer was not told", exc_info=task.exception())
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._is_winding_down and not self._sequences and not self._tasks and not self._socket.closed:
            self._is_winding_down = False
            self._closing = asyncio.create_task(self.close())

    async def _answer(self, body: bytes) -> None:
        try:
            answer = await self._inference.run(self._model, body, None, self._turnstile)
        except MoorageError as error:
            await self._tell({**error_body(error), "id": request_id_of(body)})
        except Exception:
            logger.exception("a request failed")
            await self._tell({**error_body(unexpected()), "id": request_id_of(body)})
        else:
            self._note(answer)
            await self._send(answer.body.data.decode())

    def _note(self, answer: Answer) -> None:
        place = answer.request.sequence
        if place is None:
            return
        if place.end:
            self._sequences.discard(place.correlation_id)
        elif place.start:
            self._sequences.add(place.correlation_id)

    async def _tell(self, message: dict[str, str]) -> None:
        await self._send(json.dumps(message))

    async def _send(self, text: str) -> None:
        async with self._sending:
            try:
                async with asyncio.timeout(self._send_timeout_s):
                    await self._socket.send_str(text)
            except TimeoutError:
                self._abort()

    async def close(self, within_s: float | None = None) -> None:
        """Closes now; a client that does not answer that in time is cut off."""
        limit_s = self._send_timeout_s if within_s is None else min(within_s, self._send_timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                await self._socket.close(code=GOING_AWAY, message=b"the service is shutting down")
        except TimeoutError:
            self._abort()

    def _abort(self) -> None:
        """The client does not read."""
        transport = self._socket.get_extra_info("transport")
        if transport is not None:
            transport.abort()
