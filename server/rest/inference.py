"""One request to a model that takes tensors, from its body to the body of its answer."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from server.engine.model_settings import TensorSettings
from server.engine.served_model import VERSION, ModelState, SequenceTurn, ServedModel
from server.errors import MoorageError, ShuttingDown, UnknownModel
from server.plan import Tensors
from server.rest.parts import RestParts
from server.wire.kserve.infer_request import InferRequest, SequencePlace, parse_request, to_tensors
from server.wire.kserve.infer_response import InferBody, build_response
from server.wire.request_errors import BadRequest, NotSupported

Body = bytes | bytearray
T = TypeVar("T")
MAX_LOOP_BYTES: Final = 32_768
"""Of a request or an answer that is read or written on the event loop itself: a few milliseconds of JSON."""
SIZE_AS_TEXT: Final = 8
"""About so many bytes has a value in JSON."""


@dataclass(slots=True, kw_only=True)
class RequestFigures:
    """What became of a model's requests."""

    completed: int = 0
    failed: int = 0
    completed_ns: int = 0
    """From their bodies to their answers."""
    failed_ns: int = 0
    last_ms: int = 0
    """When the last one came, since the epoch; 0: none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answered request."""

    request: InferRequest
    body: InferBody


@dataclass(frozen=True, slots=True)
class Inference:
    """Requests to the models of the repository."""

    parts: RestParts
    figures: dict[str, RequestFigures] = field(default_factory=dict)
    """By model."""

    def named(self, name: str, version: str | None) -> ServedModel:
        """Any model, loaded or not.

        Raises:
            UnknownModel: There is none of that name or version.
        """
        model = self.parts.engine.repository.get(name)
        if version not in (None, VERSION):
            raise UnknownModel(f"{name} has no such version; allowed: {VERSION}, or none in the address")
        return model

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """A model that takes tensors, or did and still ends its sequences.

        Raises:
            UnknownModel: There is none of that name or version, or no copy of it is left.
            NotSupported: It listens to audio.
        """
        model = self.named(name, version)
        if model.accepts.listens:
            raise NotSupported(f"{name} listens to audio: it is reached at /v1/listen, not with tensors")
        return model

    def models(self) -> list[ServedModel]:
        """Those that take tensors and are loaded."""
        return [model for model in self._all() if model.state is ModelState.READY and not model.declared.listens]

    async def drained(self) -> None:
        """Returns when no model that takes tensors has sequences or requests any more."""
        await asyncio.gather(*(model.drained() for model in self._all() if not _listens(model)))

    async def run(
        self, model: ServedModel, body: Body, header_length: str | None, turnstile: asyncio.Lock | None = None
    ) -> Answer:
        """One request. Cancelling the call cancels it, and with it its sequence.

        Args:
            model: Whom it goes to.
            body: The request.
            header_length: Of its JSON part, as its header says; None: there is no such header.
            turnstile: Of a connection of texts: its requests are offered in the order in which they came to the
                turnstile, and are answered in JSON alone.

        Raises:
            MoorageError: It is refused, or has failed.
        """
        figures = self.figures.setdefault(model.name, RequestFigures())
        figures.last_ms = round(datetime.now(UTC).timestamp() * 1000)
        begun_ns = self.parts.clock.now_ns()
        try:
            answer = await self._run(model, body, header_length, turnstile)
        except MoorageError:
            figures.failed += 1
            figures.failed_ns += self.parts.clock.now_ns() - begun_ns
            raise
        figures.completed += 1
        figures.completed_ns += self.parts.clock.now_ns() - begun_ns
        return answer

    async def _run(
        self, model: ServedModel, body: Body, header_length: str | None, turnstile: asyncio.Lock | None
    ) -> Answer:
        declared = model.accepts

        def read() -> tuple[InferRequest, Tensors]:
            request = parse_request(body, header_length, declared.inputs)
            return request, to_tensors(request, declared.inputs, declared.outputs)

        async with turnstile or nullcontext():
            request, tensors = await _aside(len(body), read)
        # from here to the offer there is no wait: who came first through the turnstile is first
        if turnstile is not None and any(request.is_binary(name) for name in request.outputs or declared.outputs):
            raise NotSupported("outputs go as JSON here; allowed: binary_data false")
        _check_wishes(request, model)
        self._check_open(request.sequence)
        answer = await model.infer(
            tensors, turn=_turn(request.sequence), priority=request.priority, timeout_ns=request.timeout_ns
        )

        def write() -> InferBody:
            return build_response(request, answer, model=model.name, version=model.version, outputs=declared.outputs)

        n_bytes = sum(array.size * SIZE_AS_TEXT for array in answer.arrays.values())
        return Answer(request=request, body=await _aside(n_bytes, write))

    def _all(self) -> list[ServedModel]:
        repository = self.parts.engine.repository
        return [repository.get(name) for name in repository.names()]

    def _check_open(self, place: SequencePlace | None) -> None:
        """Raises: ShuttingDown: the service is about to stop, and the request is not of a sequence that lives."""
        if self.parts.site.is_draining() and (place is None or place.start):
            raise ShuttingDown("the service is shutting down")


def _check_wishes(request: InferRequest, model: ServedModel) -> None:
    """Raises: BadRequest: it asks for a level, or a bound on its wait, that would not be honoured."""
    levels = 1
    if model.scheduler == "dynamic":
        settings = model.settings
        assert isinstance(settings, TensorSettings), "it takes tensors"
        levels = settings.priority_levels
    if request.priority > levels:
        allowed = f"0 to {levels}: {model.name} has {levels} levels"
        if levels == 1:
            allowed = f"0 or 1: {model.name} has one level"
        raise BadRequest(f"request.parameters.priority is {request.priority}; allowed: {allowed}")
    if request.sequence is not None and request.timeout_ns is not None:
        raise BadRequest(
            f"request.parameters.timeout is {request.timeout_ns // 1000}; allowed: 0, or none at all: "
            f"models.{model.name}.backlog_wait_s bounds how long a sequence waits for a slot"
        )


def _listens(model: ServedModel) -> bool:
    """Nothing is left of one that is unloaded: then there is nothing to wait for either."""
    try:
        return model.accepts.listens
    except UnknownModel:
        return True


async def _aside(n_bytes: int, work: Callable[[], T]) -> T:
    """What ``work`` returns: in a thread, where so many bytes would hold up the event loop."""
    return await asyncio.to_thread(work) if n_bytes > MAX_LOOP_BYTES else work()


def _turn(place: SequencePlace | None) -> SequenceTurn | None:
    if place is None:
        return None
    return SequenceTurn(correlation_id=place.correlation_id, start=place.start, end=place.end)
