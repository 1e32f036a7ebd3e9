"""``/v2/repository``: which models there are; loading, replacing and unloading them."""

import asyncio
import json
from collections.abc import Coroutine

from aiohttp import web

from server.engine.served_model import ModelState
from server.errors import ConfigError
from server.rest.bodies import read_body
from server.rest.parts import RestParts, Route
from server.rest.refusals import kserve_refusal
from server.wire.kserve.fields import MAX_JSON_BYTES
from server.wire.kserve.repository_requests import parse_index, parse_load, parse_unload
from server.wire.request_errors import BadRequest, NotPermitted

MODEL = "/v2/repository/models/{model}"


def repository_routes(parts: RestParts) -> list[Route]:
    """The addresses of the repository."""
    pages = RepositoryPages(parts)
    return [
        Route(method="POST", path=path, handler=handler, refuse=kserve_refusal)
        for path, handler in (
            ("/v2/repository/index", pages.index),
            (f"{MODEL}/load", pages.load),
            (f"{MODEL}/unload", pages.unload),
        )
    ]


class RepositoryPages:
    """The handlers."""

    def __init__(self, parts: RestParts) -> None:
        self._parts = parts
        self._changes: set[asyncio.Task[None]] = set()
        """Loads and unloads that go on."""

    async def index(self, request: web.Request) -> web.Response:
        """Every model and its state."""
        only_ready = parse_index(await self._body(request))
        entries = [
            {"name": each.name, "version": each.version, "state": each.state.value, "reason": each.reason}
            for each in self._parts.engine.repository.index()
            if each.state is ModelState.READY or not only_ready
        ]
        return web.Response(body=json.dumps(entries).encode(), content_type="application/json")

    async def load(self, request: web.Request) -> web.Response:
        """Loads a model, or replaces it; answers when it serves."""
        self._check_permitted()
        overrides = parse_load(await self._body(request))
        await self._change(self._parts.engine.repository.load(request.match_info["model"], overrides or None))
        return web.Response(body=b"{}", content_type="application/json")

    async def unload(self, request: web.Request) -> web.Response:
        """Unloads a model; answers when its last request has ended."""
        self._check_permitted()
        parse_unload(await self._body(request))
        await self._change(self._parts.engine.repository.unload(request.match_info["model"]))
        return web.Response(body=b"{}", content_type="application/json")

    async def _body(self, request: web.Request) -> bytearray:
        return await read_body(request, max_bytes=MAX_JSON_BYTES, timeout_s=self._parts.config.http.body_timeout_s)

    async def _change(self, work: Coroutine[None, None, None]) -> None:
        """Does it to its end, even if the client leaves meanwhile.

        Raises:
            BadRequest: The model's settings are refused.
        """
        task = asyncio.create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        try:
            await asyncio.shield(task)
        except ConfigError as error:
            raise BadRequest(str(error)) from error

    def _check_permitted(self) -> None:
        if not self._parts.config.http.model_control:
            raise NotPermitted("models are not loaded or unloaded over the network here; http.model_control allows it")
