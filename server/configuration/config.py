"""Every setting of the service: frozen, bounded, with its unit in its name. Unknown keys are errors.

A value comes from the file (TOML), then from the environment (``MOORAGE_SERVER__PORT=9000`` sets ``server.port``), then
from the command line; the last one wins. Nothing changes a configuration after it is loaded.
"""

import ipaddress
import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from server.configuration.environment import settings_in
from server.configuration.faults import allowed_values, fault_line, field_at, is_text
from server.configuration.model_sections import (
    MAX_RESOURCES,
    FinalConfig,
    LiveConfig,
    TensorModelConfig,
    repeated_name,
)
from server.configuration.section import NAME_PATTERN, PATTERN_WORDS, SHA256_PATTERN, Section
from server.errors import ConfigError

__all__ = [
    "BACKLOG_LEVELS",
    "NAME_PATTERN",
    "PATTERN_WORDS",
    "AccessConfig",
    "AccessKey",
    "AuditConfig",
    "CodecConfig",
    "FinalConfig",
    "HttpConfig",
    "LiveConfig",
    "LogConfig",
    "MoorageConfig",
    "Section",
    "ServerConfig",
    "TensorModelConfig",
    "TlsConfig",
    "Tree",
    "allowed_values",
    "config_sources",
    "field_paths",
    "is_loopback",
    "load_config",
]

ORIGIN_PATTERN = r"\*|https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?"

Tree = dict[str, object]
"""Sections and fields as TOML gives them."""


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


BACKLOG_LEVELS = 8
"""Levels of streams that wait for a slot."""


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
    priority: int = Field(default=0, ge=0, le=BACKLOG_LEVELS)
    """Its level where streams wait for a slot (``live.backlog``): 1 goes first; 0 is the last of the levels."""


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


class HttpConfig(Section):
    """Requests with a body: recordings, and the models of ``[[models]]``."""

    max_body_bytes: int = Field(default=104_857_600, ge=1024, le=4_294_967_296)
    """Largest body; a larger one is refused with 413."""
    body_timeout_s: float = Field(default=60.0, gt=0.0, le=3600.0)
    """Time for a body to come in whole; then the request is refused with 408. A recording is read as it comes: its
    client may let so much time pass in a row, and in all so much more than its audio lasts."""
    max_requests: int = Field(default=64, ge=1, le=65_536)
    """Requests with a body that are worked on at once; more are refused with 503."""
    model_control: bool = False
    """Whether clients may load, replace and unload models (``/v2/repository``); where there are keys, any key may."""


class AuditConfig(Section):
    """Finished streams that are decoded again, alone, to compare: a misrouted chunk shows in nothing else."""

    share: float = Field(default=0.01, ge=0.0, le=1.0)
    """Part of the streams that is audited where there is capacity left; 0: none. No client waits for an audit or is
    refused because of one. It needs a free slot beside its own: with fewer than two slots in all this has no effect."""
    max_audio_s: float = Field(default=60.0, gt=0.0, le=60.0)
    """Audio of a stream that is kept for it at most, in memory, until it is compared, or for 10 minutes after its end;
    of longer ones the beginning is audited."""
    alarm_s: float = Field(default=600.0, gt=0.0, le=86_400.0)
    """Time after a mismatch for which ``/readyz?strict`` says 503."""
    log_texts: bool = True
    """Whether the log line about a difference has the words around it, as heard and as decoded alone; false where logs
    must hold nothing that was said."""


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
    models: tuple[TensorModelConfig, ...] = Field(default=(), max_length=64, strict=False)
    """Further models, which take tensors."""
    resources: dict[str, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(default={}, max_length=MAX_RESOURCES)
    """How much there is of each resource, by names of your own: what models take of one together (their ``resources``)
    is never more."""
    http: HttpConfig = HttpConfig()
    """Requests with a body."""
    audit: AuditConfig = AuditConfig()
    """Finished streams decoded again."""

    @model_validator(mode="after")
    def _names_differ(self) -> "MoorageConfig":
        name = repeated_name(self.models)
        if name is not None:
            raise ValueError(f"models: several have the name {name}")
        return self

    @model_validator(mode="after")
    def _resources_suffice(self) -> "MoorageConfig":
        sections = [("live", self.live), ("final", self.final)]
        sections += [(f"models.{model.name}", model) for model in self.models]
        for place, section in sections:
            for resource, need in section.resources.items():
                total = self.resources.get(resource)
                if total is None:
                    known = ", ".join(self.resources) or "none is configured"
                    raise ValueError(f"{place}.resources: {resource} is not in [resources]; known: {known}")
                if need > total:
                    raise ValueError(f"{place}.resources.{resource}: {need}, but [resources] has {total}")
        return self

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
        lines = dict.fromkeys(fault_line(MoorageConfig, fault) for fault in error.errors(include_url=False))
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
    sections = {name: type(field.default) for name, field in MoorageConfig.model_fields.items()}
    return [
        f"{name}.{key}"
        for name, section in sections.items()
        if issubclass(section, BaseModel)
        for key in section.model_fields
    ]


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
        field, text = field_at(MoorageConfig, path), environment[name]
        value = text if field is not None and is_text(field) else _as_toml(text)
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
