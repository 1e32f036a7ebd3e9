"""Bodies of requests and answers, bounded in size and time."""

import asyncio

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from server.rest.unpacking import Unpacker
from server.wire.request_errors import BadRequest, BodyTooLarge, BodyTooSlow


async def read_body(request: web.Request, *, max_bytes: int, timeout_s: float) -> bytearray:
    """The whole body, unpacked where it came compressed.

    Raises:
        BodyTooLarge: It has more than ``max_bytes``; the rest is not read.
        BodyTooSlow: It was not there in ``timeout_s``.
        BadRequest: It broke off, packed or not, or is not packed as it says.
    """
    if request.content_length is not None and request.content_length > max_bytes:
        raise _too_large(max_bytes)
    unpacker = unpacker_of(request)
    pieces = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for packed in request.content.iter_any():
                for piece in unpacker.feed(packed):
                    pieces += piece
                    if len(pieces) > max_bytes:
                        raise _too_large(max_bytes)
                    await asyncio.sleep(0)  # little may unpack to much
    except TimeoutError:
        raise BodyTooSlow(f"the body did not come in {timeout_s:g} s") from None
    except (RequestPayloadError, web.HTTPException, ValueError) as error:
        raise BadRequest(f"the body cannot be read: {error}"[:300]) from None
    unpacker.finish()
    return pieces


def unpacker_of(request: web.Request) -> Unpacker:
    """How its body is packed.

    Raises:
        BadRequest: In a way that is not taken.
    """
    return Unpacker(", ".join(request.headers.getall("Content-Encoding", [])))


async def send(request: web.Request, response: web.Response, *, timeout_s: float) -> web.Response:
    """Sends an answer whole; a client that does not read it in time is cut off."""
    try:
        async with asyncio.timeout(timeout_s):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the answer was not read") from None
    return response


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {max_bytes} bytes, which is what is allowed here")
