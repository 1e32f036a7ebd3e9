"""``/v2``: the service, its models, and requests to them."""

import json
from http import HTTPStatus
from typing import Any

from aiohttp import web

from server.engine.served_model import ModelState, ServedModel
from server.gateway.http import respond
from server.rest.bodies import read_body
from server.rest.inference import Inference, RequestFigures
from server.rest.model_pages import describe, figures_of
from server.rest.parts import Handler, RestParts, Route
from server.rest.refusals import kserve_refusal
from server.wire.kserve.descriptions import model_config, model_metadata, server_metadata, statistics
from server.wire.kserve.infer_request import HEADER_LENGTH
from server.wire.request_errors import NotReady

MODEL = "/v2/models/{model}"
VERSIONED = MODEL + "/versions/{version}"
BINARY = "application/octet-stream"


def model_routes(parts: RestParts, inference: Inference) -> list[Route]:
    """The addresses of models."""
    pages = ModelPages(parts, inference)
    routes = [
        _page("/v2", pages.service),
        _page("/v2/health/live", pages.live, is_open=True),
        _page("/v2/health/ready", pages.ready, is_open=True),
        _page("/v2/models/stats", pages.all_statistics),
    ]
    for model in (MODEL, VERSIONED):
        routes += [
            _page(model, pages.metadata),
            _page(f"{model}/ready", pages.model_ready),
            _page(f"{model}/config", pages.config),
            _page(f"{model}/stats", pages.statistics),
            Route(method="POST", path=f"{model}/infer", handler=pages.infer, refuse=kserve_refusal),
        ]
    return routes


def _page(path: str, handler: Handler, *, is_open: bool = False) -> Route:
    return Route(method="GET", path=path, handler=handler, refuse=kserve_refusal, is_open=is_open, is_work=False)


class ModelPages:
    """The handlers."""

    def __init__(self, parts: RestParts, inference: Inference) -> None:
        self._parts = parts
        self._inference = inference

    async def service(self, request: web.Request) -> web.Response:
        """What the service is."""
        return _json(server_metadata(self._parts.site.version))

    async def live(self, request: web.Request) -> web.Response:
        """It runs."""
        return _json({"live": True})

    async def ready(self, request: web.Request) -> web.Response:
        """It takes new sequences, and no model is being loaded."""
        index = self._parts.engine.repository.index()
        is_ready = respond("GET", "/readyz", self._parts.site).status is HTTPStatus.OK
        is_ready = is_ready and all(entry.state is not ModelState.LOADING for entry in index)
        return _json({"ready": is_ready}, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def metadata(self, request: web.Request) -> web.Response:
        """What a model takes and gives."""
        return _json(model_metadata(describe(self._model(request))))

    async def model_ready(self, request: web.Request) -> web.Response:
        """Whether a model takes requests."""
        model = self._inference.named(request.match_info["model"], request.match_info.get("version"))
        if model.state is not ModelState.READY:
            raise NotReady(f"{model.name} is {model.state.value}: {model.reason}")
        return _json({"name": model.name, "ready": True})

    async def config(self, request: web.Request) -> web.Response:
        """How a model is served."""
        return _json(model_config(describe(self._model(request))))

    async def statistics(self, request: web.Request) -> web.Response:
        """What a model has done."""
        model = self._model(request)
        return _json(statistics([figures_of(model, self._figures(model))]))

    async def all_statistics(self, request: web.Request) -> web.Response:
        """What all models that take tensors have done."""
        models = self._inference.models()
        return _json(statistics([figures_of(model, self._figures(model)) for model in models]))

    async def infer(self, request: web.Request) -> web.Response:
        """One request to a model."""
        model, http = self._model(request), self._parts.config.http
        body = await read_body(request, max_bytes=http.max_body_bytes, timeout_s=http.body_timeout_s)
        answer = await self._inference.run(model, body, request.headers.get(HEADER_LENGTH))
        if answer.body.header_length is None:
            return web.Response(body=answer.body.data, content_type="application/json")
        headers = {HEADER_LENGTH: str(answer.body.header_length)}
        return web.Response(body=answer.body.data, content_type=BINARY, headers=headers)

    def _model(self, request: web.Request) -> ServedModel:
        return self._inference.model(request.match_info["model"], request.match_info.get("version"))

    def _figures(self, model: ServedModel) -> RequestFigures:
        return self._inference.figures.get(model.name, RequestFigures())


def _json(body: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(status=status.value, body=json.dumps(body).encode(), content_type="application/json")
