"""A client of the service's native protocol, Deepgram's live ``/v1/listen``, over one websocket."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from clients.messages import Metadata, Refusal, ServerMessage, parse_message
from server.errors import BadParameter, MoorageError

PATH = "/v1/listen"
LOWEST_RATE, HIGHEST_RATE = 4_000, 96_000
"""Sample rates that the service takes."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
NORMAL_CLOSE = 1000
MAX_REASON_CHARS = 300
"""A refusal's own words are one line; what answers may be another server, with a page."""
KEY_REFUSED = frozenset({401, 403})
BUSY = frozenset({429, 503})
"""Statuses of a refusal that says nothing against the client: later it may be taken."""


def is_websocket_address(url: str) -> bool:
    """Whether it is ``ws://`` or ``wss://`` with a host, and a port that there can be, if it has one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or port
        return False


class ConnectionFailed(MoorageError):
    """No connection, a refusal, or a connection that ended before everything was answered."""

    code: ClassVar[str] = "connection_failed"


class Refused(ConnectionFailed):
    """The service answered, but with another status than that of an upgrade."""

    code: ClassVar[str] = "refused"

    def __init__(self, message: str, *, status: int, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        """The service's own words."""
        self.retry_after_s = retry_after_s
        """When a busy service wants to be asked again; None: it did not say, or asking again is of no use."""

    @property
    def is_busy(self) -> bool:
        """Whether it is only for now."""
        return self.status in BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a client shows of itself, and whom it trusts."""

    key: str | None = field(default=None, repr=False)
    """Sent as ``Authorization: Token KEY``; None: nothing is sent."""
    ca_file: Path | None = None
    """PEM file of the authorities that may vouch for a ``wss://`` service; None: those of the system."""

    def headers(self) -> dict[str, str]:
        """Of the opening request.

        Raises:
            BadParameter: The key holds what cannot stand in a header.
        """
        if self.key is None:
            return {}
        if not self.key or not all("!" <= mark <= "~" for mark in self.key):
            raise BadParameter("the key must be printable ASCII without spaces")
        return {"Authorization": f"Token {self.key}"}

    def tls(self, address: str) -> ssl.SSLContext | None:
        """For a ``wss://`` address; None for ``ws://``.

        Raises:
            BadParameter: The file of authorities cannot be read, or the address has no TLS to use it for.
        """
        if urlsplit(address).scheme != "wss":
            if self.ca_file is not None:
                raise BadParameter(f"{self.ca_file}: authorities are for wss:// addresses, this one is ws://")
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # an SSLError is one
            raise BadParameter(f"{self.ca_file}: no certificates can be read ({error.strerror or error})") from error


ANYONE = Access()
"""No key, the system's authorities."""


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
        if not is_websocket_address(url):
            raise ConnectionFailed(f"{url}: is no websocket address such as ws://127.0.0.1:8765")
        parts = urlsplit(url)
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
                message = parse_message(raw)
                if message is None:
                    continue
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
async def open_connection(url: str, options: ListenOptions, access: Access = ANYONE) -> AsyncIterator[Connection]:
    """A connection, closed on the way out.

    Raises:
        BadParameter: The key or the file of authorities cannot be used.
        Refused: The service refuses; the message says why.
        ConnectionFailed: Nobody listens there, or nobody to be trusted.
    """
    address = options.apply(url)
    headers, tls = access.headers(), access.tls(address)
    proxy: Literal[True] | None = None if urlsplit(address).hostname in LOOPBACK else True
    try:
        socket = await connect(
            address, additional_headers=headers, ssl=tls, compression=None, proxy=proxy, max_size=2**24
        )
    except InvalidStatus as error:
        raise _refusal(error) from error
    except ssl.SSLCertVerificationError as error:
        raise ConnectionFailed(
            f"cannot trust {url}: {error.verify_message}; --ca names the file of an authority that vouches for it"
        ) from error
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


def _refusal(error: InvalidStatus) -> Refused:
    """With the service's own words, which stand in a header; any other server's in the body."""
    response = error.response
    body = (response.body or b"").decode(errors="replace")
    reason = " ".join((response.headers.get("dg-error") or body).split())[:MAX_REASON_CHARS] or "no reason given"
    again = response.headers.get("Retry-After", "")
    hint = f"; try again in {again} s" if again else ""
    return Refused(
        f"refused with {response.status_code}: {reason}{hint}",
        status=response.status_code,
        reason=reason,
        retry_after_s=float(again) if response.status_code in BUSY and again.isdecimal() else None,
    )
