"""Who may use the service and how much: API keys, what each may take, web pages. Pure: time is an argument.

A key is 192 random bits, so a plain SHA-256 of it in the configuration gives nothing away; a password would need more.
Neither keys nor their hashes are ever logged or part of a message.
"""

import hashlib
import hmac
import ipaddress
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from server.configuration.config import AccessConfig, AccessKey, MoorageConfig, is_loopback
from server.errors import KeyLimit, OriginRefused, Unauthorized

SCHEMES: Final = frozenset({"token", "bearer"})
"""Words before a key, in any case: in ``Authorization``, or as the websocket subprotocol before it."""
BURST_NS: Final = 60_000_000_000
"""A key's audio of one minute may come at once."""
RETRY_STREAMS_S: Final = 5
"""When a client that has all its streams open may ask again: nobody knows when one ends."""
MAX_SHOWN_CHARS: Final = 100
DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request says of who sends it."""

    authorization: str | None = field(default=None, repr=False)
    subprotocols: tuple[str, ...] = field(default=(), repr=False)
    """Browsers cannot set headers, so they offer ``token`` and their key."""
    origin: str | None = None
    """Where the web page comes from; browsers alone send it."""
    host: str | None = None

    @classmethod
    def of_headers(cls, get_all: Callable[[str], Sequence[str]]) -> "Credentials":
        """From the values of a header by its name. Two values of one that must be single make one that fits nothing."""

        def single(name: str) -> str | None:
            return ", ".join(get_all(name)) or None

        offered = [name.strip() for value in get_all("Sec-WebSocket-Protocol") for name in value.split(",")]
        return cls(
            authorization=single("Authorization"),
            subprotocols=tuple(offered),
            origin=single("Origin"),
            host=single("Host"),
        )


@dataclass(slots=True, kw_only=True)
class _Account:
    """What the streams of a key have taken."""

    key: AccessKey
    streams: int = 0
    paid_until_ns: int = 0
    """When all audio taken so far would be paid for at the key's rate; up to BURST_NS ahead is credit."""

    def debt_ns(self, now_ns: int) -> int:
        """Time until new audio may be taken; negative while there is credit."""
        return self.paid_until_ns - now_ns - BURST_NS

    def pay(self, audio_s: float, now_ns: int) -> None:
        cost_ns = round(audio_s * 60e9 / self.key.max_audio_s_per_minute)
        self.paid_until_ns = max(self.paid_until_ns, now_ns) + cost_ns


class Grant:
    """What a request was given: so many sequences of a key, until ``release``."""

    def __init__(self, account: _Account | None = None, sequences: int = 0) -> None:
        self._account = account
        self._sequences = sequences

    @property
    def key_name(self) -> str | None:
        """Whose key it is; None in an open service."""
        return None if self._account is None else self._account.key.name

    @property
    def priority(self) -> int:
        """Level of its streams where they wait for a slot: 1 goes first; 0 is the last."""
        return 0 if self._account is None else self._account.key.priority

    def spend(self, audio_s: float, now_ns: int) -> float:
        """Audio was taken, of all its sequences together.

        Returns:
            Seconds to wait before more is read: 0 while the key's budget lasts.
        """
        if self._account is None or not self._account.key.max_audio_s_per_minute:
            return 0.0
        self._account.pay(audio_s, now_ns)
        return max(0, self._account.debt_ns(now_ns)) / 1e9

    def release(self) -> None:
        """The sequences are over. Again does nothing."""
        if self._account is not None:
            self._account.streams -= self._sequences
        self._sequences = 0


class AccessControl:
    """The configured keys, and what is in use of each."""

    def __init__(self, config: AccessConfig) -> None:
        self._config = config
        self._accounts: dict[str, _Account] = {}
        self.configure(config)

    def configure(self, config: AccessConfig) -> None:
        """Other keys and origins from now on. Grants of a key that is gone stay until they are released."""
        self._config = config
        before = self._accounts
        self._accounts = {}
        for key in config.keys:
            account = before.get(key.name) or _Account(key=key)
            account.key = key
            self._accounts[key.name] = account

    def streams(self) -> dict[str, int]:
        """Sequences in use by name of the key."""
        return {name: account.streams for name, account in self._accounts.items()}

    def admit(self, request: Credentials, sequences: int, now_ns: int) -> Grant:
        """Takes ``sequences`` for a client.

        Raises:
            OriginRefused: It is a web page of an origin that is not allowed.
            Unauthorized: There are keys, and it has none of them.
            KeyLimit: Its key has no more streams, or has used up its audio for now.
        """
        self._check_origin(request)
        account = self._account(request)
        if account is None:
            return Grant()
        key = account.key
        if key.max_streams and account.streams + sequences > key.max_streams:
            raise KeyLimit(
                f"the key {key.name!r} has {account.streams} of its {key.max_streams} streams open, "
                f"{sequences} more would be too many",
                retry_after_s=RETRY_STREAMS_S,
            )
        debt_ns = account.debt_ns(now_ns)
        if key.max_audio_s_per_minute and debt_ns >= 0:
            raise KeyLimit(
                f"the key {key.name!r} has used up its {key.max_audio_s_per_minute:g} seconds of audio per minute",
                retry_after_s=max(1, math.ceil(debt_ns / 1e9)),
            )
        account.streams += sequences
        return Grant(account, sequences)

    def check(self, request: Credentials) -> None:
        """Whether a client is one of those that ``admit`` lets in, whatever else it asks for.

        Raises:
            OriginRefused, Unauthorized: As ``admit``.
        """
        self._check_origin(request)
        self._account(request)

    def check_page(self, request: Credentials) -> None:
        """Whether a client may read what the service tells of itself.

        Raises:
            Unauthorized: There are keys, it has none of them, and ``open_metrics`` is not set.
        """
        if not self._config.open_metrics:
            self._account(request)

    def _account(self, request: Credentials) -> _Account | None:
        """None in an open service, which ignores keys that it is shown.

        Raises:
            Unauthorized: There are keys, and the client has none of them.
        """
        if not self._accounts:
            return None
        digest = hashlib.sha256(_presented_key(request).encode(errors="surrogateescape")).hexdigest()
        found: _Account | None = None
        for account in self._accounts.values():
            # all are compared, each in constant time: the time tells nothing of which or how near
            if hmac.compare_digest(digest, account.key.sha256):
                found = account
        if found is None:
            raise Unauthorized("the API key is not known here")
        return found

    def _check_origin(self, request: Credentials) -> None:
        """Raises: OriginRefused."""
        origin = request.origin
        if origin is None:
            return
        allowed = self._config.allowed_origins
        if "*" in allowed or origin.lower() in (each.lower() for each in allowed):
            return
        if _is_same_origin(origin, request.host, trust_names=bool(self._accounts)):
            return
        raise OriginRefused(
            f"web pages of {_shown(origin)} may not connect; those that may are listed in access.allowed_origins"
        )


def warnings_of(config: MoorageConfig) -> list[str]:
    """What an operator should know of a configuration that is served as it is."""
    if is_loopback(config.server.host):
        return []
    where = f"the service listens on {config.server.host}"
    warnings = []
    if not config.access.keys:
        warnings.append(f"{where} without API keys: whoever reaches the port can use it (access.allow_anonymous)")
    if not config.tls.enabled:
        warnings.append(f"{where} without TLS: keys and audio can be read on the way, unless a proxy encrypts them")
    return warnings


def _presented_key(request: Credentials) -> str:
    """Raises: Unauthorized: there is none."""
    if request.authorization is not None:
        scheme, _, key = request.authorization.strip().partition(" ")
        if scheme.lower() in SCHEMES and key.strip():
            return key.strip()
        raise Unauthorized("the Authorization header is not understood; allowed: Token KEY, Bearer KEY")
    names = iter(request.subprotocols)
    for name in names:
        if name.lower() in SCHEMES:
            key = next(names, "")
            if key:
                return key
    raise Unauthorized(
        "an API key is needed: as header Authorization: Token KEY (or Bearer KEY), "
        "from a browser as the websocket subprotocols token, KEY"
    )


def _is_same_origin(origin: str, host: str | None, *, trust_names: bool) -> bool:
    """Whether a page comes from the address that it connects to.

    Without ``trust_names`` a host name does not count: a page of evil.example whose name turns out to be 127.0.0.1 (DNS
    rebinding) has the same origin as an open service of that machine.
    """
    if host is None:
        return False
    try:
        page, service = urlsplit(origin), urlsplit(f"//{host}")
        default_port = DEFAULT_PORTS.get(page.scheme)
        if default_port is None or not page.hostname or page.hostname != service.hostname:
            return False
        if (page.port or default_port) != (service.port or default_port):
            return False
    except ValueError:  # a port that is no number, brackets around no address
        return False
    return trust_names or _is_address(page.hostname)


def _is_address(host: str) -> bool:
    """Whether ``host`` needs no name server: an IP address, or localhost."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return is_loopback(host)
    return True


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"
