"""Every setting of the service: frozen, bounded, with its unit in its name. Unknown keys are errors.

A value comes from the file (TOML), then from the environment (``MOORAGE_SERVER__PORT=9000`` sets ``server.port``), then
from the command line; the last one wins. Nothing changes a configuration after it is loaded.
"""

import difflib
import ipaddress
import os
import re
import tomllib
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from server.configuration.environment import settings_in
from server.errors import ConfigError

ORIGIN_PATTERN = r"\*|https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?"

Scalar = bool | int | float | str
Tree = dict[str, object]
"""Sections and fields as TOML gives them."""

DEVICE_PATTERN = r"^(auto|cpu|cuda(:\d{1,3})?)$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
PATTERN_WORDS = {
    DEVICE_PATTERN: "auto, cpu, cuda or cuda:N",
    NAME_PATTERN: "1 to 64 letters, digits, spaces and . _ @ -, a letter or digit first",
    SHA256_PATTERN: "64 hexadecimal digits in lower case, as moorage key new prints them",
}

Device = Annotated[str, Field(pattern=DEVICE_PATTERN)]
"""``auto`` (CUDA if there is one, else CPU), ``cpu``, ``cuda`` or ``cuda:N``."""


class Section(BaseModel):
    """What all sections have in common."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class ServerConfig(Section):
    """Connections: where they come in and what each may take."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. Any that is not loopback, as ``0.0.0.0``, needs ``access.keys`` or
    ``access.allow_anonymous``."""
    port: int = Field(default=8765, ge=0, le=65_535)
    """TCP port for websockets and plain GETs alike; 0 takes any free one."""
    max_connections: int = Field(default=4096, ge=1, le=1_000_000)
    """Websockets open at once, whatever their state; more are refused with 503 before the upgrade."""
    max_handshakes: int = Field(default=256, ge=1, le=65_536)
    """Sockets at once that have not finished their opening handshake; then the longest waiting is closed, so that slow
    ones never keep others out."""
    max_message_bytes: int = Field(default=1_048_576, ge=1024, le=67_108_864)
    """Largest message of a client; a larger one closes its connection with 1009."""
    max_sequence_s: float = Field(default=14_400.0, ge=1.0, le=604_800.0)
    """Audio of one sequence at most; then it is ended with all its results, and the connection closed with 1008."""
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
    """Results that may wait in one connection's socket buffer before sending waits for the client; the kernel's own
    buffer is set to the same (Linux takes twice as much)."""
    max_queued_finals: int = Field(default=256, ge=1, le=65_536)
    """Final results of one client, pending or unread, above which its audio is not read on."""
    drain_timeout_s: float = Field(default=25.0, ge=0.0, le=86_400.0)
    """Time for live streams to come to their own end after SIGTERM, while new ones are refused; then the service ends
    them with what they are due. 0 ends them at once."""
    shutdown_timeout_s: float = Field(default=5.0, gt=0.0, le=600.0)
    """Time for live connections to take their last results and close (1012) when the service stops."""


class LogConfig(Section):
    """What the service says of itself, on the error output."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe message that is logged."""
    format: Literal["text", "json"] = "text"
    """One line a message, for people or for machines: ``json`` is one object a line."""
    transcripts: bool = False
    """Whether final texts are logged too. They are what people said: think of who reads the logs. Audio never is."""


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


class AccessKey(Section):
    """A client's API key, without the key itself: ``moorage key new`` makes both."""

    name: str = Field(pattern=NAME_PATTERN)
    """Whose key it is, for logs and messages."""
    sha256: str = Field(pattern=SHA256_PATTERN, repr=False)
    """SHA-256 of the key in hexadecimal."""
    max_streams: int = Field(default=0, ge=0, le=1_000_000)
    """Sequences at the same time (a multichannel stream is one for each channel); 0 is without limit."""
    max_audio_s_per_minute: float = Field(default=0.0, ge=0.0, le=10_000_000.0)
    """Audio taken per minute, all sequences of the key together: the budget of one minute may come at once, more is
    read no faster than this. 60 is one stream in real time; 0 is without limit."""


class AccessConfig(Section):
    """Who may use the service."""

    keys: tuple[AccessKey, ...] = Field(default=(), max_length=1000, strict=False)
    """API keys; with none of them the service is open to whoever reaches its port."""
    allow_anonymous: bool = False
    """Whether a service without keys may listen on more than the loopback interface."""
    allowed_origins: tuple[str, ...] = Field(default=(), max_length=1000, strict=False)
    """Web pages that may connect, as ``https://host`` or ``https://host:port``; ``*`` is all of them. Pages that come
    from the service's own address always may, and so may clients that are no browsers."""
    open_metrics: bool = False
    """Whether ``/metrics`` and ``/v1/models`` are shown without a key although there are keys."""

    @model_validator(mode="after")
    def _consistent(self) -> "AccessConfig":
        for what, values in (
            ("name", [key.name for key in self.keys]),
            ("sha256", [key.sha256 for key in self.keys]),
        ):
            double, count = next(iter(Counter(values).most_common(1)), ("", 0))
            if count > 1:
                raise ValueError(f"keys: {count} have the {what} {double}")
        if self.keys and self.allow_anonymous:
            raise ValueError("allow_anonymous is true, but there are keys; allowed: one or the other")
        for origin in self.allowed_origins:
            if not re.fullmatch(ORIGIN_PATTERN, origin):
                raise ValueError(
                    f"allowed_origins: given {origin!r}, allowed: https://host, https://host:port (no path), or *"
                )
        return self


class TlsConfig(Section):
    """Encryption by the service itself; without it, by a proxy before it or not at all."""

    certificate: str = ""
    """File with the certificate and its chain (PEM). With ``private_key`` it turns TLS (1.2 or newer) on."""
    private_key: str = ""
    """File with the certificate's private key (PEM, not encrypted)."""

    @property
    def enabled(self) -> bool:
        """Whether the port speaks TLS."""
        return bool(self.certificate)

    @model_validator(mode="after")
    def _both_or_none(self) -> "TlsConfig":
        if bool(self.certificate) != bool(self.private_key):
            given, missing = ("certificate", "private_key") if self.certificate else ("private_key", "certificate")
            raise ValueError(f"{given} is set, but {missing} is not; allowed: both or neither")
        return self


class CodecConfig(Section):
    """Decoding of whatever is neither raw samples nor WAV, in processes of their own, started when first needed."""

    max_processes: int = Field(default=16, ge=1, le=1024)
    """Processes at most."""
    streams_per_process: int = Field(default=64, ge=1, le=1024)
    """Coded streams that share a process: its memory, and its end if a decoder should bring it down. One takes about
    1 % of a core. Streams beyond what all processes hold are refused with 503."""


class MoorageConfig(Section):
    """The whole configuration."""

    server: ServerConfig = ServerConfig()
    """Connections."""
    log: LogConfig = LogConfig()
    """What the service says of itself."""
    access: AccessConfig = AccessConfig()
    """Who may use the service."""
    tls: TlsConfig = TlsConfig()
    """Encryption."""
    codec: CodecConfig = CodecConfig()
    """Decoding of coded audio."""
    live: LiveConfig = LiveConfig()
    """The live model."""
    final: FinalConfig = FinalConfig()
    """The final model."""

    @model_validator(mode="after")
    def _open_only_on_purpose(self) -> "MoorageConfig":
        host, access = self.server.host, self.access
        if access.keys or access.allow_anonymous or is_loopback(host):
            return self
        raise ValueError(
            f"server.host: {host} is open to the network, and there are no API keys; either add [[access.keys]] "
            "(moorage key new NAME makes one) or set access.allow_anonymous = true"
        )


def is_loopback(host: str) -> bool:
    """Whether only programs of the same machine reach ``host``. A name that is not ``localhost`` is not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


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
    tree: Tree = {}
    for source in config_sources(path, environment, overrides):
        tree = _merged(tree, source)
    try:
        return MoorageConfig.model_validate(tree)
    except ValidationError as error:
        lines = dict.fromkeys(_line(fault) for fault in error.errors(include_url=False))
        raise ConfigError("\n".join(lines)) from None


def config_sources(path: Path | None, environment: Mapping[str, str] | None, overrides: Tree | None) -> list[Tree]:
    """What file, environment and command line say, in this order; arguments and errors as of ``load_config``."""
    return [
        _read(path) if path is not None else {},
        _from_environment(os.environ if environment is None else environment),
        overrides or {},
    ]


def field_paths() -> list[str]:
    """The dotted path of every field there is, in the order of the sections; lists of tables are one field."""
    sections = {name: _section_of(field) for name, field in MoorageConfig.model_fields.items()}
    return [f"{name}.{key}" for name, section in sections.items() if section for key in section.model_fields]


def _read(path: Path) -> Tree:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> Tree:
    """Variables of the form ``MOORAGE_SECTION__FIELD``.

    Raises:
        ConfigError: One has the prefix and is no setting.
    """
    tree: Tree = {}
    for name, path in settings_in(environment, field_paths()).items():
        field, text = _field(path), environment[name]
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


def _field(path: Sequence[int | str]) -> FieldInfo | None:
    """The field at a dotted path, or None where there is none (or it is below ``options``)."""
    section = _section(path[:-1]) if path else None
    return None if section is None else section.model_fields.get(str(path[-1]))


def _section(path: Sequence[int | str]) -> type[BaseModel] | None:
    """The section at a dotted path, or the one that the items of a list there are; None where there is none."""
    section: type[BaseModel] = MoorageConfig
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
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


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
        message = fault["msg"].removeprefix("Value error, ")
        return f"{path}: {message}" if location else message
    if fault["type"] == "missing":
        return f"{path}: missing"
    field = _field(location)
    allowed = _allowed_item(location) if field is None else allowed_values(field)
    given = "something else" if location[-1:] == ("sha256",) else repr(fault["input"])  # it may be the key itself
    return f"{path}: given {given}, allowed: {allowed}"


def _suggestion(path: tuple[int | str, ...]) -> str:
    section = _section(path[:-1])
    known = [] if section is None else list(section.model_fields)
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    return f" (did you mean {close[0]}?), allowed: {', '.join(known)}" if close else f", allowed: {', '.join(known)}"


def _allowed_item(location: tuple[int | str, ...]) -> str:
    """What an item of a list or of ``options`` takes, in words."""
    if not isinstance(location[-1], int):
        return "a text, a number or a boolean"
    return "a text" if _section(location) is None else "a table"


def allowed_values(field: FieldInfo) -> str:
    """What a field takes, in words."""
    annotation = field.annotation
    if get_origin(annotation) is Literal:
        return ", ".join(str(choice) for choice in get_args(annotation))
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
        return f"a list of {'texts' if _section_of(field) is None else 'tables'}, at most {limit}"
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
