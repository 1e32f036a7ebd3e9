"""What the service itself needs: an address, descriptors, certificates."""

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from server.access.certificate import expires_at_s
from server.configuration.config import MoorageConfig, is_loopback
from server.doctor.finding import Finding, fault, ok, warning
from server.errors import ConfigError

SPARE_DESCRIPTORS: Final = 128
"""What the service opens beside its connections: listening sockets, pipes, libraries."""
EXPIRY_WARNING_S: Final = 21 * 86_400


def check_port(config: MoorageConfig) -> Iterator[Finding]:
    """Whether the address can be had."""
    server = config.server
    address = f"{server.host}:{server.port}"
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(target)
            listening.listen()
    except OSError as error:
        reason = error.strerror or str(error)
        advice = "end what listens there (it may be Moorage itself), or set server.port to another one"
        yield fault("address", f"{address}: cannot be had: {reason}", advice)
        return
    reach = "this machine alone" if is_loopback(server.host) else "the network"
    yield ok("address", f"{address} is free; open to {reach}")


def check_descriptors(config: MoorageConfig) -> Iterator[Finding]:
    """The limit of open files against the connections."""
    try:
        import resource
    except ImportError:
        yield ok("open files", "no limit on this system")
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = config.server.max_connections + SPARE_DESCRIPTORS
    text = f"{limit} allowed, {needed} for {config.server.max_connections} connections"
    if limit != resource.RLIM_INFINITY and limit < needed:
        advice = f"ulimit -n {needed} (systemd: LimitNOFILE={needed}), or lower server.max_connections"
        yield warning("open files", text, advice)
    else:
        yield ok("open files", "no limit" if limit == resource.RLIM_INFINITY else text)


def check_tls(config: MoorageConfig, now_s: float) -> Iterator[Finding]:
    """Certificate and key, and for how long they will do."""
    if not config.tls.enabled:
        if is_loopback(config.server.host):
            yield ok("tls", "off; the service is open to this machine alone")
        else:
            advice = "set tls.certificate and tls.private_key, or put a proxy that encrypts before the service"
            yield warning("tls", "off, and the service is open to the network: audio and keys go in the clear", advice)
        return
    from server.access.tls import TlsContext

    try:
        TlsContext(config.tls)
        left_s = expires_at_s(Path(config.tls.certificate)) - now_s
    except ConfigError as error:
        yield fault("tls", str(error), "correct the files or their names in [tls]")
        return
    until = datetime.fromtimestamp(now_s + left_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if left_s <= 0:
        yield fault("tls", f"the certificate expired on {until}", "renew it; SIGHUP makes a running service read it")
    elif left_s < EXPIRY_WARNING_S:
        advice = "renew it; SIGHUP makes a running service read it"
        yield warning("tls", f"the certificate expires on {until}, in {left_s / 86_400:.0f} days", advice)
    else:
        yield ok("tls", f"certificate good until {until}")
