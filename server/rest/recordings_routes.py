"""Recordings over HTTP: ``POST /v1/listen`` as Deepgram has it, ``POST /v1/audio/transcriptions`` as OpenAI has it."""

import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from asr_model.transcript import FinalOutput, Sentiment, Word
from server.access.access import Credentials
from server.codec.audio_format import AudioFormat
from server.codec.intake import open_intake
from server.engine.live_host import FINAL
from server.engine.sentiment_reader import SentimentReader
from server.engine.served_model import ModelState
from server.errors import MoorageError, ShuttingDown, UnknownModel
from server.gateway.http import LISTEN_PATH, TRANSCRIPTIONS_PATH
from server.plan import Samples
from server.recordings.reading import read_pieces
from server.rest.event_stream import EventStream
from server.rest.parts import REQUEST_ID, RestParts, Route
from server.rest.patience import Patience
from server.rest.recording_body import RecordingBody
from server.rest.refusals import listen_refusal, openai_refusal
from server.rest.transcription import Transcription
from server.wire.messages import ModelCard
from server.wire.query import sentiment_refused
from server.wire.recordings import deepgram_answer
from server.wire.recordings.deepgram_query import RecordingOptions, parse_recording_query
from server.wire.recordings.openai_form import BadField
from server.wire.request_errors import BadRequest, BodyTooLarge, NotReady, NotSupported

ONE_ROW: Final = 1
FORM_BYTES: Final = 4_194_304
"""A form may have beside its file: 32 fields of 64 KiB at most, and their heads."""


def recording_routes(parts: RestParts) -> list[Route]:
    """The addresses of recordings."""
    pages = RecordingPages(parts)
    return [
        Route(method="POST", path=LISTEN_PATH, handler=pages.listen, refuse=listen_refusal, closes=True),
        Route(
            method="POST",
            path=TRANSCRIPTIONS_PATH,
            handler=pages.transcriptions,
            refuse=openai_refusal,
            closes=True,
        ),
    ]


class RecordingPages:
    """The handlers. Pieces of all recordings together never overfill the final model's queue: they wait here."""

    def __init__(self, parts: RestParts) -> None:
        self._parts = parts
        self._places = asyncio.Semaphore(max(1, parts.config.final.recordings_max_queued))

    async def listen(self, request: web.Request) -> web.Response:
        """A recording as the whole body."""
        query = request.raw_path.partition("?")[2]
        options = parse_recording_query(query, self._model_names())
        if request.content_type == "application/json":
            raise BadRequest("recordings are not fetched from a url here: send the audio itself as the body")
        self._check_open()
        reader = self._sentiment_reader(options)
        _check_length(request, self._parts.config.http.max_body_bytes)
        recording = await self._recording(request, options)
        sentiments: list[Sentiment | None] = []
        if reader is not None:
            stretches = deepgram_answer.stretches(recording, options)
            sentiments = await reader.read_all(options.text.transcript(tuple(words)) for _, words in stretches)
        # the words of hours take a while
        answer = await asyncio.to_thread(_deepgram_text, recording, options, sentiments)
        headers = {"dg-request-id": request[REQUEST_ID]}
        return web.Response(body=answer, content_type="application/json", headers=headers)

    async def transcriptions(self, request: web.Request) -> web.StreamResponse:
        """A recording as a file of a form."""
        for name in request.query:
            raise BadField(name[:80], "is a parameter of the query; options are fields of the form here")
        self._check_open()
        _check_length(request, self._parts.config.http.max_body_bytes + FORM_BYTES)
        patience = self._patience()

        def open_body() -> RecordingBody:
            return self._body(request, AudioFormat(), patience, mixdown=True, rows=ONE_ROW)

        events = EventStream(request, self._parts.config.server.send_timeout_s)
        return await Transcription(request, self._model_names(), patience, open_body, self._read_piece, events).answer()

    async def _recording(self, request: web.Request, options: RecordingOptions) -> deepgram_answer.Recording:
        """Reads the whole body."""
        channels: list[list[Word]] = [[] for _ in range(options.audio.channels if options.multichannel else ONE_ROW)]
        mixdown = not options.multichannel
        async with (
            self._body(request, options.audio, self._patience(), mixdown=mixdown, rows=len(channels)) as body,
            aclosing(read_pieces(body.blocks(request), self._read_piece)) as pieces,
        ):
            async for piece in pieces:
                channels[piece.channel] += piece.words
        return deepgram_answer.Recording(
            request_id=request[REQUEST_ID],
            sha256=body.sha256,
            created=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            duration_s=body.duration_s,
            channels=[tuple(words) for words in channels],
            model=self._card(),
        )

    def _check_open(self) -> None:
        """Before a body is read.

        Raises:
            ShuttingDown: The service is about to stop.
            NotSupported: It reads no recordings.
            NotReady: The final model takes nothing now.
        """
        parts = self._parts
        if parts.site.is_draining():
            raise ShuttingDown("the service is shutting down")
        if not parts.config.final.enabled:
            raise NotSupported('there is no final model here to read recordings (final.model = "none")')
        if not parts.config.final.recordings_max_queued:
            raise NotSupported("recordings are not read here (final.recordings_max_queued is 0)")
        if (model := parts.engine.repository.get(FINAL)).state is not ModelState.READY:
            raise NotReady(f"the final model is {model.state.value}: {model.reason}")

    def _body(
        self, request: web.Request, audio: AudioFormat, patience: Patience, *, mixdown: bool, rows: int
    ) -> RecordingBody:
        """To be entered at once: it has taken what it gives back."""
        parts = self._parts
        credentials = Credentials.of_headers(lambda name: request.headers.getall(name, []))
        grant = parts.access.admit(credentials, rows, parts.clock.now_ns())
        try:
            intake = open_intake(audio, mixdown, parts.codecs)
        except MoorageError:
            grant.release()
            raise
        return RecordingBody(
            intake=intake,
            grant=grant,
            clock=parts.clock,
            patience=patience,
            max_bytes=parts.config.http.max_body_bytes,
            max_s=parts.config.server.max_sequence_s,
        )

    def _patience(self) -> Patience:
        return Patience(self._parts.config.http.body_timeout_s, self._parts.clock)

    async def _read_piece(self, samples: Samples) -> FinalOutput:
        async with self._places:
            try:
                return await self._parts.engine.read_recording(samples)
            except UnknownModel as error:
                raise NotReady(str(error)) from None  # it was there when the recording began

    def _sentiment_reader(self, options: RecordingOptions) -> SentimentReader | None:
        """None: it is not asked for.

        Raises:
            BadQuery: It is, and this service does not tell it, or not now.
        """
        if not options.sentiment:
            return None
        reader = self._parts.engine.sentiment_reader
        if reader is None or not reader.is_ready:
            raise sentiment_refused(is_configured=reader is not None)
        return reader

    def _model_names(self) -> tuple[str, ...]:
        cards = self._parts.cards
        return tuple(card.name for card in (cards.live, cards.final) if card is not None)

    def _card(self) -> ModelCard:
        return self._parts.cards.final or self._parts.cards.live


def _check_length(request: web.Request, max_bytes: int) -> None:
    """Raises: BodyTooLarge: its header says so already."""
    if request.content_length is not None and request.content_length > max_bytes:
        raise BodyTooLarge(f"the body is larger than {max_bytes} bytes, which is what is allowed here")


def _deepgram_text(
    recording: deepgram_answer.Recording, options: RecordingOptions, sentiments: list[Sentiment | None]
) -> bytes:
    return json.dumps(deepgram_answer.answer(recording, options, sentiments), ensure_ascii=False).encode()
