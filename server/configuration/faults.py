"""What is wrong with a configuration, in words: where, what was given, what is allowed. Pure."""

import difflib
import types
from collections.abc import Sequence
from typing import Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from server.configuration.model_sections import INSTANCES_WORDS
from server.configuration.section import PATTERN_WORDS, Scalar


def field_at(root: type[BaseModel], path: Sequence[int | str]) -> FieldInfo | None:
    """The field at a dotted path, or None where there is none (or it is below ``options``)."""
    section = _section(root, path[:-1]) if path else None
    return None if section is None else section.model_fields.get(str(path[-1]))


def _section(root: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    """The section at a dotted path, or the one that the items of a list there are; None where there is none."""
    section = root
    for key in path:
        if isinstance(key, int):
            continue  # which one of the list makes no difference
        field = section.model_fields.get(key)
        below = None if field is None else _section_of(field)
        if below is None:
            return None
        section = below
    return section


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field is, or that the items of its list are."""
    kinds: list[object] = [field.annotation]
    while kinds:
        kind = kinds.pop(0)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        kinds += get_args(kind)
    return None


def is_text(field: FieldInfo) -> bool:
    """Whether its value needs no quotes in a variable."""
    return field.annotation is str or get_origin(field.annotation) is Literal


def fault_line(root: type[BaseModel], fault: ErrorDetails) -> str:
    """One fault as ``server.port: given 99999, allowed: an integer from 0 to 65535``."""
    location = _place(fault["loc"])
    path = ".".join(str(part) for part in location) or "moorage"
    if fault["type"] == "extra_forbidden":
        return f"{path}: unknown{_suggestion(root, location)}"
    if fault["type"] == "value_error":
        message = fault["msg"].removeprefix("Value error, ")
        return f"{path}: {message}" if location else message
    if fault["type"] == "missing":
        return f"{path}: missing"
    field = field_at(root, location)
    allowed = _allowed_item(root, location) if field is None else allowed_values(field)
    given = "something else" if location[-1:] == ("sha256",) else repr(fault["input"])  # it may be the key itself
    return f"{path}: given {given}, allowed: {allowed}"


def _place(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where a fault is, without the branches of unions, of which each reports a fault of its own."""
    if "options" in location[:-1]:
        location = location[: location.index("options") + 2]
    return tuple(part for at, part in enumerate(location) if at == 0 or location[at - 1] != "instances")


def _suggestion(root: type[BaseModel], path: tuple[int | str, ...]) -> str:
    section = _section(root, path[:-1])
    known = [] if section is None else list(section.model_fields)
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    return f" (did you mean {close[0]}?), allowed: {', '.join(known)}" if close else f", allowed: {', '.join(known)}"


def _allowed_item(root: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """What an item of a list or of a table of texts or numbers takes, in words."""
    holder = field_at(root, location[:-1])
    kinds = get_args(holder.annotation) if holder is not None else ()
    if isinstance(location[-1], int):
        kind = kinds[0] if kinds else str
        if _section(root, location) is not None:
            return "a table"
        return "a text" if kind is str else allowed_values(FieldInfo.from_annotation(kind))
    if len(kinds) == len(("key", "value")) and kinds[1] != Scalar:
        return allowed_values(FieldInfo.from_annotation(kinds[1]))
    return "a text, a number or a boolean"


def allowed_values(field: FieldInfo) -> str:
    """What a field takes, in words."""
    annotation = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return INSTANCES_WORDS
    if get_origin(annotation) is Literal:
        return ", ".join(str(choice) or '""' for choice in get_args(annotation))
    pattern = next((getattr(rule, "pattern", None) for rule in field.metadata if hasattr(rule, "pattern")), None)
    if pattern is not None:
        return PATTERN_WORDS[pattern]
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        return f"{'an integer' if annotation is int else 'a number'} {_range(field)}".strip()
    if annotation is str:
        return "a text" if field.default == "" else "a text that is not empty"
    if get_origin(annotation) is tuple:
        limit = next(rule.max_length for rule in field.metadata if isinstance(rule, MaxLen))
        return f"a list of {_items(field)}, at most {limit}"
    if get_origin(annotation) is dict:
        return "a table of texts, numbers and booleans" if get_args(annotation)[1] == Scalar else "a table of integers"
    return "a table"


def _items(field: FieldInfo) -> str:
    if _section_of(field) is not None:
        return "tables"
    return "texts" if get_args(field.annotation)[0] is str else "integers"


def _range(field: FieldInfo) -> str:
    words = []
    for rule in field.metadata:
        if isinstance(rule, Ge):
            words.append(f"from {rule.ge}")
        elif isinstance(rule, Gt):
            words.append(f"above {rule.gt}")
        elif isinstance(rule, Le):
            words.append(f"to {rule.le}")
        elif isinstance(rule, Lt):
            words.append(f"below {rule.lt}")
    return " ".join(words)
