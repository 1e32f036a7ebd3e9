"""Deepgram's Python SDK pointed at this service; nothing of it is changed but the address."""

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports names that websockets has deprecated
    import deepgram.listen.v1.client  # noqa: F401  # else imported, with its warnings, at the first use
    from deepgram import AsyncDeepgramClient, DeepgramClient
    from deepgram.core.api_error import ApiError
    from deepgram.core.events import EventType
    from deepgram.core.request_options import RequestOptions
    from deepgram.environment import DeepgramClientEnvironment
    from deepgram.listen.v1.socket_client import V1SocketClient
    from deepgram.listen.v1.types import ListenV1Metadata, ListenV1Results, ListenV1SpeechStarted, ListenV1UtteranceEnd

__all__ = [
    "ApiError",
    "EventType",
    "ListenV1Metadata",
    "ListenV1Results",
    "ListenV1SpeechStarted",
    "ListenV1UtteranceEnd",
    "RequestOptions",
]

LISTEN_LIMIT_S = 120


def environment(url: str) -> DeepgramClientEnvironment:
    """``url`` is that of the service: ``ws://host:port``."""
    http = url.replace("ws", "http", 1)
    return DeepgramClientEnvironment(base=http, production=url, agent=url, agent_rest=http)


def sdk(url: str, key: str = "any") -> DeepgramClient:
    """The client as its README makes it."""
    return DeepgramClient(api_key=key, environment=environment(url))


def read_recording(url: str, body: Any, **query: Any) -> Any:
    """What the SDK makes of a whole recording. It closes no connections, so it is given some that are closed."""
    with httpx.Client(trust_env=False, timeout=60.0) as http:
        client = DeepgramClient(api_key="any", environment=environment(url), httpx_client=http)
        return client.listen.v1.media.transcribe_file(request=body, **query)


def async_sdk(url: str, key: str = "any") -> AsyncDeepgramClient:
    """Likewise."""
    return AsyncDeepgramClient(api_key=key, environment=environment(url))


@dataclass
class Heard:
    """What a callback was given, in order."""

    messages: list[Any] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)

    @property
    def results(self) -> list[ListenV1Results]:
        return [each for each in self.messages if isinstance(each, ListenV1Results)]

    @property
    def interims(self) -> list[ListenV1Results]:
        return [each for each in self.results if not each.is_final]

    @property
    def finals(self) -> list[ListenV1Results]:
        return [each for each in self.results if each.is_final]

    @property
    def text(self) -> str:
        return " ".join(transcript(each) for each in self.finals if transcript(each))


def transcript(result: ListenV1Results) -> str:
    """As every example of the SDK reads it."""
    text: str = result.channel.alternatives[0].transcript
    return text


def stream(url: str, act: Callable[[V1SocketClient, Heard], None], **query: Any) -> Heard:
    """Connects, listens in a thread, lets ``act`` send, and hears to the close."""
    heard = Heard()
    with sdk(url).listen.v1.connect(**{"model": "nova-3", **query}) as connection:
        connection.on(EventType.MESSAGE, heard.messages.append)
        connection.on(EventType.ERROR, heard.errors.append)
        listener = threading.Thread(target=connection.start_listening)
        listener.start()
        try:
            act(connection, heard)
        finally:
            listener.join(LISTEN_LIMIT_S)
        assert not listener.is_alive()
    return heard
