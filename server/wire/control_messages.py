"""Text messages of a client, read: which one it is, and what it asks for."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from server.errors import BadMessage

MAX_SHOWN_CHARS: Final = 80


class Message(Enum):
    """What a client can send."""

    AUDIO = "audio"
    FINALIZE = "Finalize"
    CLOSE_STREAM = "CloseStream"
    KEEP_ALIVE = "KeepAlive"
    CONFIGURE = "Configure"
    UNREADABLE = "a message that is not known"


CONTROL_MESSAGES: Final = (Message.FINALIZE, Message.CLOSE_STREAM, Message.KEEP_ALIVE, Message.CONFIGURE)
ALLOWED: Final = ", ".join(message.value for message in CONTROL_MESSAGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMessage:
    """A text message."""

    kind: Message
    channel: int | None = None
    """Of a Finalize: the channel to flush; None: all."""
    refusal: "ConfigureRefusal | None" = None
    """Of a Configure: why it cannot be done; None: it asks for what is so anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureRefusal:
    """Why a Configure is answered with ConfigureFailure."""

    code: str
    description: str


def parse_control(text: str, *, max_chars: int, channels: int) -> ControlMessage:
    """The message in ``text``.

    Raises:
        BadMessage: It is none of this protocol.
    """
    if len(text) > max_chars:
        raise BadMessage(f"a text of {len(text)} characters is no control message; audio goes in binary messages")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise BadMessage(
            f"{_shown(text)} is not JSON; text messages are JSON objects, audio goes in binary messages"
        ) from None
    if not isinstance(message, dict):
        raise BadMessage(f'{_shown(text)} is not a JSON object with a "type"; allowed types: {ALLOWED}')
    kind = next((each for each in CONTROL_MESSAGES if each.value == message.get("type")), None)
    if kind is None:
        raise BadMessage(f"message type {_shown(message.get('type'))} is not known; allowed types: {ALLOWED}")
    return ControlMessage(
        kind=kind,
        channel=_channel(message, channels) if kind is Message.FINALIZE else None,
        refusal=_configure_refusal(message) if kind is Message.CONFIGURE else None,
    )


def _channel(message: Mapping[str, object], channels: int) -> int | None:
    channel = message.get("channel")
    if channel is None:
        return None
    if not isinstance(channel, int) or isinstance(channel, bool) or not 0 <= channel < channels:
        raise BadMessage(f"channel of Finalize is {_shown(channel)}; allowed: an integer from 0 to {channels - 1}")
    return channel


def _configure_refusal(message: Mapping[str, object]) -> ConfigureRefusal | None:
    """Features can be turned off that are off anyway, and a list of terms emptied that is empty."""
    if message.get("keyterms"):
        return ConfigureRefusal(
            code="CONFIGURE_KEYTERMS_NOT_SUPPORTED", description="the models cannot be prompted with terms yet"
        )
    features = message.get("features") or {}
    asked = [name for name, is_on in features.items() if is_on] if isinstance(features, dict) else [_shown(features)]
    if asked:
        return ConfigureRefusal(
            code="CONFIGURE_FEATURE_NOT_SUPPORTED",
            description=f"features are set with the query of the connection, not later: {_shown(', '.join(asked))}",
        )
    return None


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[: MAX_SHOWN_CHARS - 1]}…"
