"""Requests to load and unload models."""

import json
from collections.abc import Mapping

from server.wire.kserve.fields import parse_object
from server.wire.request_errors import BadRequest, NotSupported, shown

FILE_PREFIX = "file:"


def parse_index(body: bytes | bytearray) -> bool:
    """Whether only models that are ready are wanted.

    Raises:
        BadRequest: The body is outside the protocol.
    """
    fields = parse_object(body)
    is_ready = bool(fields.flag("ready", False))
    fields.finish()
    return is_ready


def parse_load(body: bytes | bytearray) -> Mapping[str, object]:
    """Fields of the model's section of the configuration that are to be other.

    Raises:
        BadRequest: The body is outside the protocol.
        NotSupported: It brings files.
    """
    fields = parse_object(body)
    asked = fields.take("parameters")
    fields.finish()
    if asked is None:
        return {}
    if not isinstance(asked, dict):
        raise BadRequest(f"request.parameters is {shown(asked)}; allowed: an object with config")
    if any(name.startswith(FILE_PREFIX) for name in asked):
        raise NotSupported("files of models cannot be sent here; allowed: config, fields of the model's section")
    if unknown := [name for name in asked if name != "config"]:
        raise BadRequest(f"request.parameters: unknown field {shown(unknown[0])}; allowed: config")
    return _overrides(asked.get("config"))


def parse_unload(body: bytes | bytearray) -> None:
    """An unload has nothing to say; ``unload_dependents`` is harmless, as no model depends on another.

    Raises:
        BadRequest: The body is outside the protocol.
    """
    fields = parse_object(body)
    asked = fields.below("parameters")
    asked.flag("unload_dependents", False)
    asked.finish()
    fields.finish()


def _overrides(config: object) -> Mapping[str, object]:
    """Raises: BadRequest: it is no text with a JSON object in it."""
    if config is None:
        return {}
    if not isinstance(config, str):
        raise BadRequest(f"request.parameters.config is {shown(config)}; allowed: a text, a JSON object in it")
    try:
        overrides = json.loads(config)
    except (ValueError, RecursionError):
        overrides = None
    if not isinstance(overrides, dict):
        raise BadRequest("request.parameters.config: allowed: a text with a JSON object, fields of the model's section")
    return overrides
