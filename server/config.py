"""Every setting of the service: frozen, bounded, with its unit in its name. Unknown keys are errors.

A value comes from the file (TOML), then from the environment (``MOORAGE_SERVER__PORT=9000`` sets ``server.port``), then
from the command line; the last one wins. Nothing changes a configuration after it is loaded.
"""

import difflib
import os
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from server.errors import ConfigError

ENVIRONMENT_PREFIX = "MOORAGE_"
SEPARATOR = "__"

Scalar = bool | int | float | str
Tree = dict[str, object]
"""Sections and fields as TOML gives them."""

Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")]
"""``auto`` (CUDA if there is one, else CPU), ``cpu``, ``cuda`` or ``cuda:N``."""


class Section(BaseModel):
    """What all sections have in common."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class ServerConfig(Section):
    """Connections: where they come in and what each may take."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. ``0.0.0.0`` opens the service to the network; it has no authentication of its own."""
    port: int = Field(default=8765, ge=0, le=65_535)
    """TCP port for websockets and plain GETs alike; 0 takes any free one."""
    max_connections: int = Field(default=4096, ge=1, le=1_000_000)
    """Websockets open at once, whatever their state; more are refused with 503 before the upgrade."""
    max_message_bytes: int = Field(default=1_048_576, ge=1024, le=67_108_864)
    """Largest message of a client; a larger one closes its connection with 1009."""
    handshake_timeout_s: float = Field(default=10.0, gt=0.0, le=120.0)
    """Time for a client to complete its opening handshake."""
    idle_timeout_s: float = Field(default=10.0, gt=0.0, le=3600.0)
    """Time without audio or KeepAlive after which a client is told so (NET-0001), its slot freed, the socket closed."""
    ping_interval_s: float = Field(default=20.0, gt=0.0, le=3600.0)
    """Time between websocket pings, which keep middleboxes from forgetting a silent connection. A late answer closes
    nothing: behind back-pressure it queues with the client's audio, and ``idle_timeout_s`` finds dead peers."""
    send_timeout_s: float = Field(default=10.0, gt=0.0, le=600.0)
    """Time for one result to leave for a client that reads slowly; after it the connection is closed."""
    write_buffer_bytes: int = Field(default=65_536, ge=1024, le=16_777_216)
    """Results that may wait in one connection's socket buffer before sending waits for the client."""
    max_queued_finals: int = Field(default=256, ge=1, le=65_536)
    """Final results of one client, pending or unread, above which its audio is not read on."""
    shutdown_timeout_s: float = Field(default=5.0, gt=0.0, le=600.0)
    """Time for live connections to take their last results and close (1012) when the service stops."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe message that is logged."""


class LiveConfig(Section):
    """The live model: stateful, under the sequence batcher."""

    model: str = Field(default="moonshine-live", min_length=1)
    """Name in the model registry."""
    instances: int = Field(default=2, ge=1, le=64)
    """Loaded copies; a stream stays on one of them. On a CPU two of one thread hold twice the streams of one of two."""
    device: Device = "auto"
    """Where the instances run; with several CUDA devices ``auto`` spreads them."""
    slots: int = Field(default=0, ge=0, le=65_536)
    """Live sequences per instance; 0 takes ``load_fraction`` of what a measurement at warm-up allows in real time."""
    max_slots: int = Field(default=1024, ge=1, le=65_536)
    """Upper limit of ``slots``, measured or given: it bounds the memory that state takes."""
    load_fraction: float = Field(default=0.8, gt=0.0, le=1.0)
    """Part of the measured real-time streams that is offered as slots."""
    max_batch: int = Field(default=64, ge=1, le=4096)
    """Rows of one step at most."""
    max_delay_ms: float = Field(default=10.0, ge=0.0, le=1000.0)
    """Time a ready tick may wait for company in its batch."""
    max_queued_s: float = Field(default=10.0, ge=1.0, le=600.0)
    """Audio of one sequence that may wait for its turn; after it the client's messages are not read on."""
    threads: int = Field(default=0, ge=0, le=1024)
    """CPU threads of each instance; 0 shares the machine's cores among the instances of both models."""
    options: dict[str, Scalar] = {}
    """Settings of the model itself; the model checks them."""

    @model_validator(mode="after")
    def _slots_within_limit(self) -> "LiveConfig":
        if self.slots > self.max_slots:
            raise ValueError(f"slots is {self.slots}, allowed: at most max_slots, which is {self.max_slots}")
        return self


class FinalConfig(Section):
    """The final model: stateless, under the dynamic batcher."""

    model: str = Field(default="moonshine-base", min_length=1)
    """Name in the model registry; ``none`` makes the live text the final text."""
    instances: int = Field(default=1, ge=1, le=64)
    """Loaded copies of the model; any request may run on any of them."""
    device: Device = "auto"
    """Where the instances run."""
    target_size: int = Field(default=2, ge=1, le=1024)
    """Requests of a batch: it starts when so many wait … Few tell finals sooner on a CPU, many use a GPU better."""
    window_ms: float = Field(default=20.0, ge=0.0, le=10_000.0)
    """… or when the oldest has waited this long, whichever comes first."""
    max_queued: int = Field(default=1024, ge=1, le=1_000_000)
    """Utterances that may wait; above it the live text becomes the final text, and is counted."""
    max_batch_s: float = Field(default=120.0, ge=30.0, le=3600.0)
    """Padded audio of one batch at most: requests times the longest of them."""
    threads: int = Field(default=0, ge=0, le=1024)
    """CPU threads of each instance; 0 shares the machine's cores among the instances of both models."""
    options: dict[str, Scalar] = {}
    """Settings of the model itself; the model checks them."""

    @property
    def enabled(self) -> bool:
        """Whether there is a second pass at all."""
        return self.model != "none"


class MoorageConfig(Section):
    """The whole configuration."""

    server: ServerConfig = ServerConfig()
    """Connections."""
    live: LiveConfig = LiveConfig()
    """The live model."""
    final: FinalConfig = FinalConfig()
    """The final model."""


def load_config(
    path: Path | None = None, environment: Mapping[str, str] | None = None, overrides: Tree | None = None
) -> MoorageConfig:
    """The configuration from file, environment and command line.

    Args:
        path: TOML file; without one the defaults are the base.
        environment: Variables to read instead of the process's own.
        overrides: Sections and fields that win over both, as the command line gives them.

    Raises:
        ConfigError: The file cannot be read, or a field is unknown or out of bounds. One line per fault: dotted path,
            what was given, what is allowed.
    """
    tree = _read(path) if path is not None else {}
    for source in (_from_environment(os.environ if environment is None else environment), overrides or {}):
        tree = _merged(tree, source)
    try:
        return MoorageConfig.model_validate(tree)
    except ValidationError as error:
        lines = dict.fromkeys(_line(fault) for fault in error.errors(include_url=False))
        raise ConfigError("\n".join(lines)) from None


def _read(path: Path) -> Tree:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> Tree:
    """Variables of the form ``MOORAGE_SECTION__FIELD``; others with the prefix are not settings."""
    tree: Tree = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT_PREFIX) or SEPARATOR not in name:
            continue
        path = name.removeprefix(ENVIRONMENT_PREFIX).lower().split(SEPARATOR)
        field = _field(path)
        value = text if field is not None and _is_text(field) else _as_toml(text)
        for key in reversed(path):
            value = {key: value}
        tree = _merged(tree, value)  # type: ignore[arg-type]  # the loop wrapped it in at least one dict
    return tree


def _as_toml(text: str) -> object:
    """``text`` as a TOML value if it is one, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _merged(base: Tree, over: Tree) -> Tree:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _field(path: list[str] | tuple[int | str, ...]) -> FieldInfo | None:
    """The field at a dotted path, or None where there is none (or it is below ``options``)."""
    model: type[BaseModel] = MoorageConfig
    field: FieldInfo | None = None
    for position, key in enumerate(path):
        field = model.model_fields.get(str(key))
        if field is None:
            return None
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
        elif position + 1 < len(path):
            return None
    return field


def _is_text(field: FieldInfo) -> bool:
    return field.annotation is str or get_origin(field.annotation) is Literal


def _line(fault: ErrorDetails) -> str:
    """One fault as ``server.port: given 99999, allowed: an integer from 0 to 65535``."""
    location = fault["loc"]
    if location[1:2] == ("options",) and len(location) > 2:
        location = location[:3]  # each branch of the union of types reports a fault of its own
    path = ".".join(str(part) for part in location) or "moorage"
    if fault["type"] == "extra_forbidden":
        return f"{path}: unknown{_suggestion(location)}"
    if fault["type"] == "value_error":
        return f"{path}: {fault['msg'].removeprefix('Value error, ')}"
    field = _field(location)
    allowed = "a text, a number or a boolean" if field is None else _allowed(field)
    return f"{path}: given {fault['input']!r}, allowed: {allowed}"


def _suggestion(path: tuple[int | str, ...]) -> str:
    parent = _field(path[:-1])
    model = MoorageConfig if len(path) == 1 else parent.annotation if parent is not None else None
    known = list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    return f" (did you mean {close[0]}?), allowed: {', '.join(known)}" if close else f", allowed: {', '.join(known)}"


def _allowed(field: FieldInfo) -> str:
    """What a field takes, in words."""
    annotation = field.annotation
    if get_origin(annotation) is Literal:
        return ", ".join(str(choice) for choice in get_args(annotation))
    pattern = next((getattr(rule, "pattern", None) for rule in field.metadata if hasattr(rule, "pattern")), None)
    if pattern is not None:
        return "auto, cpu, cuda or cuda:N"
    if annotation in (int, float):
        return f"{'an integer' if annotation is int else 'a number'} {_range(field)}".strip()
    if annotation is str:
        return "a text that is not empty"
    return "a table of texts, numbers and booleans" if isinstance(annotation, types.GenericAlias) else "a table"


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
