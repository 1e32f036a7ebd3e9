"""A client of the service's native protocol, Deepgram's live ``/v1/listen``: typed messages over one websocket."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from server.errors import MoorageError

PATH = "/v1/listen"
LOWEST_RATE, HIGHEST_RATE = 8_000, 48_000
"""Sample rates that the service takes."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
NORMAL_CLOSE = 1000
FULL = 503


class ConnectionFailed(MoorageError):
    """No connection, a refusal, or a connection that ended before everything was answered."""

    code: ClassVar[str] = "connection_failed"


class ServiceFull(ConnectionFailed):
    """Refused for now; ``retry_after_s`` is the service's own word."""

    code: ClassVar[str] = "service_full"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Message(BaseModel):
    """What all messages have in common: unknown fields are ignored, as every client of a growing protocol must."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class WireWord(Message):
    """One word with its times in seconds of the sequence's audio."""

    word: str
    start: float
    end: float
    confidence: float
    punctuated_word: str | None = None


class Alternative(Message):
    """A transcript; there is one in every result."""

    transcript: str
    confidence: float = 0.0
    words: tuple[WireWord, ...] = ()


class Channel(Message):
    """The alternatives of the only channel."""

    alternatives: tuple[Alternative, ...] = Field(min_length=1)


class MoorageMetadata(Message):
    """Where and how a result was computed, and what the live model said."""

    sequence_id: str
    instance: int
    slot: int
    batch_size: int
    queue_ms: float
    step_ms: float
    utterance: int
    covered_s: float = 0.0
    committed_words: int = 0
    """Words of the transcript that stand, counted from its first."""
    live_text: str | None = None
    live_words: tuple[WireWord, ...] = ()


class ResultMetadata(Message):
    """Metadata of a result."""

    request_id: str = ""
    moorage: MoorageMetadata


class Results(Message):
    """The open utterance (interim), or a complete one (``is_final``)."""

    type: Literal["Results"]
    start: float
    duration: float
    is_final: bool
    speech_final: bool = False
    from_finalize: bool = False
    channel: Channel
    metadata: ResultMetadata

    @property
    def transcript(self) -> str:
        """The text."""
        return self.channel.alternatives[0].transcript

    @property
    def moorage(self) -> MoorageMetadata:
        """The service's own fields."""
        return self.metadata.moorage

    @property
    def live_text(self) -> str:
        """What the live model said: the transcript itself where a final names no other."""
        live = self.moorage.live_text
        return self.transcript if live is None else live

    def split(self) -> tuple[str, str]:
        """The transcript as its committed words and the rest, which may change."""
        written = [word.punctuated_word or word.word for word in self.channel.alternatives[0].words]
        stands = len(written) if self.is_final else self.moorage.committed_words
        return " ".join(written[:stands]), " ".join(written[stands:])


class Metadata(Message):
    """The last message of a stream that was answered in full."""

    type: Literal["Metadata"]
    request_id: str = ""
    duration: float = 0.0


class Refusal(Message):
    """Why something was refused; the connection ends with it where ``closes`` is true."""

    type: Literal["Error"]
    code: str = ""
    message: str = ""
    closes: bool = True


ServerMessage = Results | Metadata | Refusal
MESSAGE: TypeAdapter[ServerMessage] = TypeAdapter(Annotated[ServerMessage, Field(discriminator="type")])


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """The query of a connection."""

    sample_rate: int
    interim_results: bool = True

    def apply(self, url: str) -> str:
        """The address to connect to: the default path if it has none, what its own query says stays.

        Raises:
            ConnectionFailed: It is no websocket address.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.netloc:
            raise ConnectionFailed(f"{url}: is no websocket address such as ws://127.0.0.1:8765")
        query = {
            "encoding": "linear16",
            "sample_rate": str(self.sample_rate),
            "channels": "1",
            "interim_results": str(self.interim_results).lower(),
        } | dict(parse_qsl(parts.query))
        path = PATH if parts.path in ("", "/") else parts.path
        return urlunsplit((parts.scheme, parts.netloc, path, urlencode(query), ""))


class Connection:
    """One sequence over one websocket. Sending and receiving may run in two tasks."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send_audio(self, linear16: bytes) -> None:
        """Audio in any framing; waits while the service reads no further. Empty audio is not sent: it would close.

        Raises:
            ConnectionFailed: The connection is gone.
        """
        if linear16:
            await self._send(linear16)

    async def finalize(self) -> None:
        """End the utterance here; answered by one final result."""
        await self._send(json.dumps({"type": "Finalize"}))

    async def keep_alive(self) -> None:
        """Hold the connection without audio; no answer."""
        await self._send(json.dumps({"type": "KeepAlive"}))

    async def close_stream(self) -> None:
        """No more audio; the rest of the answers comes, then Metadata, then the end."""
        await self._send(json.dumps({"type": "CloseStream"}))

    async def messages(self) -> AsyncIterator[ServerMessage]:
        """Everything the service says, until it closes well.

        Raises:
            ConnectionFailed: It closed with an error, or before ``Metadata``, or said what is no message.
        """
        answered = False
        try:
            async for raw in self._socket:
                message = MESSAGE.validate_json(raw)
                if isinstance(message, Refusal) and message.closes:
                    raise ConnectionFailed(f"{message.code}: {message.message}")
                answered = answered or isinstance(message, Metadata)
                yield message
        except ValidationError as error:
            raise ConnectionFailed(f"the service sent what is no message of the protocol: {error}") from error
        except ConnectionClosed as error:
            raise ConnectionFailed(_why(error)) from error
        if not answered:
            raise ConnectionFailed("the connection closed before everything was answered")

    async def _send(self, message: str | bytes) -> None:
        try:
            await self._socket.send(message)
        except ConnectionClosed as error:
            raise ConnectionFailed(_why(error)) from error


@asynccontextmanager
async def open_connection(url: str, options: ListenOptions) -> AsyncIterator[Connection]:
    """A connection, closed on the way out.

    Raises:
        ConnectionFailed: Nobody listens there, or the service refuses; the message says why.
    """
    address = options.apply(url)
    proxy: Literal[True] | None = None if urlsplit(address).hostname in LOOPBACK else True
    try:
        socket = await connect(address, compression=None, proxy=proxy, max_size=2**24)
    except InvalidStatus as error:
        raise _refusal(error) from error
    except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
        raise ConnectionFailed(f"cannot connect to {url}: {error}") from error
    try:
        yield Connection(socket)
    finally:
        await socket.close()


def _why(error: ConnectionClosed) -> str:
    if error.rcvd is None:
        return "the connection was lost"
    if error.rcvd.code == NORMAL_CLOSE:
        return "the service closed the connection"
    return f"the service closed the connection with {error.rcvd.code}: {error.rcvd.reason or 'no reason given'}"


def _refusal(error: InvalidStatus) -> ConnectionFailed:
    again = error.response.headers.get("Retry-After", "")
    if error.response.status_code == FULL and again.isdecimal():
        return ServiceFull(_why_refused(error), retry_after_s=float(again))
    return ConnectionFailed(_why_refused(error))


def _why_refused(error: InvalidStatus) -> str:
    """The service's words, which stand in a header; any other server's in the body."""
    response = error.response
    reason = response.headers.get("dg-error") or (response.body or b"").decode(errors="replace").strip()
    again = response.headers.get("Retry-After")
    hint = f"; try again in {again} s" if again else ""
    return f"refused with {response.status_code}: {reason or 'no reason given'}{hint}"
