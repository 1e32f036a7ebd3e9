"""One request to ``POST /v1/audio/transcriptions``: a form whose file is read as it arrives."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from aiohttp import BodyPartReader, web

from asr_model.transcript import Word
from server.recordings.reading import Piece, ReadPiece, read_pieces
from server.rest.event_stream import EventStream
from server.rest.parts import REQUEST_ID
from server.rest.patience import Patience
from server.rest.recording_body import RecordingBody
from server.rest.unpacking import PLAIN
from server.wire.recordings import openai_answer
from server.wire.recordings.openai_form import BadField, TranscriptionForm, parse_form
from server.wire.request_errors import BadRequest, shown

MAX_FIELD_BYTES: Final = 65_536
MAX_FIELDS: Final = 32
PLAIN_ENCODINGS: Final = frozenset({"", "binary", "8bit", "7bit"})
"""Of a part's content, by ``Content-Transfer-Encoding``."""


class Transcription:
    """From the form to the answer. Fields may stand before the file, as clients send them, or behind it.

    Args:
        request: The request.
        models: Names that ``model`` may have beside OpenAI's.
        patience: With its sender.
        open_body: Takes what a recording needs of the service.
        read_piece: The final model.
        events: Where pieces are told as they are read, if that is asked for.
    """

    def __init__(
        self,
        request: web.Request,
        models: tuple[str, ...],
        patience: Patience,
        open_body: Callable[[], RecordingBody],
        read_piece: ReadPiece,
        events: EventStream,
    ) -> None:
        self._request = request
        self._models = models
        self._patience = patience
        self._open_body = open_body
        self._read_piece = read_piece
        self._events = events
        self._fields: dict[str, list[str]] = {}
        self._duration_s: float | None = None
        self._pieces: list[tuple[Word, ...]] = []

    async def answer(self) -> web.StreamResponse:
        """Reads the form, then answers it; with ``stream`` both at the same time.

        Raises:
            MoorageError: Before anything was answered.
        """
        async with self._events.failing():
            async with aclosing(self._parts()) as parts:
                async for part in parts:
                    await (self._take_file(part) if part.name == "file" else self._take_field(part))
            form = self._form()
            if self._duration_s is None:
                raise BadField("file", "is missing")
            return await self._told(form, self._duration_s)
        return self._events.response

    async def _told(self, form: TranscriptionForm, duration_s: float) -> web.StreamResponse:
        if form.stream:
            return await self._events.finish(self._pieces, duration_s)
        # subtitles of hours take a while
        text = await asyncio.to_thread(openai_answer.answer, form, self._pieces, duration_s)
        content_type = openai_answer.CONTENT_TYPES[form.response_format]
        headers = {"Content-Type": content_type, "x-request-id": self._request[REQUEST_ID]}
        return web.Response(body=text.encode(), headers=headers)

    async def _take_file(self, part: BodyPartReader) -> None:
        if self._duration_s is not None:
            raise BadField("file", "is given twice")
        is_streamed = "model" in self._fields and self._form().stream
        async with self._open_body() as body:
            async with aclosing(read_pieces(body.blocks(part), self._read_piece)) as pieces:
                async for piece in pieces:
                    await self._take_piece(piece, is_streamed=is_streamed)
            self._duration_s = body.duration_s

    async def _take_piece(self, piece: Piece, *, is_streamed: bool) -> None:
        self._pieces.append(piece.words)
        if is_streamed:
            await self._events.tell(piece.words)

    async def _take_field(self, part: BodyPartReader) -> None:
        value = bytearray()
        while True:
            async with self._patience.waiting():
                chunk = await part.read_chunk(MAX_FIELD_BYTES)
            if not chunk:
                break
            value += chunk
            if len(value) > MAX_FIELD_BYTES:
                raise BadField(part.name or "?", f"has more than {MAX_FIELD_BYTES} bytes")
        self._fields.setdefault(part.name or "", []).append(value.decode(errors="replace"))

    def _form(self) -> TranscriptionForm:
        return parse_form(self._fields, self._models)

    async def _parts(self) -> AsyncGenerator[BodyPartReader, None]:
        """The fields of the form, in order.

        Raises:
            BadRequest: It is no form, or has too many fields.
            BodyTooSlow: It does not come.
        """
        request = self._request
        if request.content_type != "multipart/form-data":
            raise BadRequest(f"the body must be multipart/form-data, not {request.content_type}"[:200])
        if (packing := request.headers.get("Content-Encoding", "")) not in PLAIN:
            raise BadRequest(
                f"Content-Encoding is {shown(packing)}; a form is not packed: audio is compressed as it is"
            )
        async with self._patience.waiting():
            reader = await request.multipart()
        for _ in range(MAX_FIELDS + 1):
            async with self._patience.waiting():
                part = await reader.next()
            if part is None:
                return
            if not isinstance(part, BodyPartReader):
                raise BadRequest("a form within the form is not read: send plain fields")
            _check_plain(part)
            yield part
        raise BadRequest(f"the form has more than {MAX_FIELDS} fields")


def _check_plain(part: BodyPartReader) -> None:
    """Raises: BadRequest: its content is packed in a way of its own, which no form has any more."""
    transfer = part.headers.get("Content-Transfer-Encoding", "").strip().lower()
    if transfer not in PLAIN_ENCODINGS or "Content-Encoding" in part.headers:
        raise BadRequest(f"the content of {(part.name or '?')[:80]!r} is encoded: send it as it is")
