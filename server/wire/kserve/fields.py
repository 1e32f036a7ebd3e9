"""JSON objects of requests, read field by field: what has another type, or is not known, is refused by its path."""

import json
from typing import Final, NoReturn

from server.wire.request_errors import BadRequest, BodyTooLarge, shown

MAX_JSON_BYTES: Final = 262_144
"""Of the JSON part of a body: parsing holds the interpreter, so the event loop too, up to 100 ms a MiB. Tensors go
beside it in binary."""


class Fields:
    """One object of a request.

    Args:
        value: What stands where the object should.
        path: Where that is, for messages.

    Raises:
        BadRequest: It is no object.
    """

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise BadRequest(f"{path} is {shown(value)}; allowed: an object")
        self._left: dict[str, object] = dict(value)
        self._known: list[str] = []
        self.path = path

    def take(self, name: str) -> object:
        """The value of a field, of any type; None where it is null or not there."""
        self._known.append(name)
        return self._left.pop(name, None)

    def text(self, name: str, default: str | None = None) -> str:
        """A text. Raises: BadRequest: it is none, or missing without a default."""
        value = self.take(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            self.refuse(name, value, "a text")
        return value

    def flag(self, name: str, default: bool | None) -> bool | None:
        """True or false. Raises: BadRequest: it is neither."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(name, value, "true or false")
        return value

    def whole(self, name: str, *, most: int) -> int | None:
        """An integer from 0 to ``most``; None where it is not there. Raises: BadRequest: it is none of these."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            self.refuse(name, value, f"an integer from 0 to {most}")
        return value

    def items(self, name: str) -> list[object] | None:
        """A list; None where it is not there. Raises: BadRequest: it is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, list):
            self.refuse(name, value, "a list")
        return value

    def below(self, name: str) -> "Fields":
        """An object; an empty one where it is not there. Raises: BadRequest: it is none."""
        value = self.take(name)
        return Fields({} if value is None else value, f"{self.path}.{name}")

    def finish(self) -> None:
        """Nothing else may be there. Raises: BadRequest: there is."""
        for name in self._left:
            raise BadRequest(f"{self.path}: unknown field {shown(name)}; allowed: {', '.join(self._known)}")

    def refuse(self, name: str, value: object, allowed: str) -> NoReturn:
        """Raises: BadRequest: always."""
        said = "is missing" if value is None else f"is {shown(value)}"
        raise BadRequest(f"{self.path}.{name} {said}; allowed: {allowed}")


def parse_object(body: bytes | bytearray | memoryview, path: str = "request") -> Fields:
    """The object that ``body`` is; an empty body is an empty object.

    Raises:
        BadRequest: It is no JSON object, or has numbers that JSON has not.
        BodyTooLarge: It is above MAX_JSON_BYTES.
    """
    if len(body) > MAX_JSON_BYTES:
        raise BodyTooLarge(
            f"the JSON part has {len(body)} bytes; allowed: {MAX_JSON_BYTES}, and tensors beside it as binary data "
            "(binary_data_size, Inference-Header-Content-Length)"
        )
    if not body:
        return Fields({}, path)
    try:
        value = json.loads(str(body, "utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise BadRequest(f"{path} is nested too deep") from None
    except ValueError as error:  # neither UTF-8 nor JSON
        raise BadRequest(f"{path} is no JSON: {error}"[:300]) from None
    return Fields(value, path)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON; allowed in binary data alone")
