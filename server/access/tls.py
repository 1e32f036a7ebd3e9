"""Encryption of the service's port: a certificate that can be replaced while the service runs.

Connections ask for the certificate when they come in (by the SNI callback, which is called without SNI too), so a
replacement is one assignment: a new pair is loaded as a whole or not at all, and open connections keep theirs.
"""

import ssl
from pathlib import Path
from typing import Final

from server.access.certificate import expires_at_s
from server.configuration.config import TlsConfig
from server.errors import ConfigError

MINIMUM_VERSION: Final = ssl.TLSVersion.TLSv1_2
ALPN: Final = ["http/1.1"]
"""Websockets are opened by HTTP/1.1; a client that offers HTTP/2 first must not get it."""

Fingerprint = tuple[tuple[int, int, int], ...]
"""Inode, size and time of change of each file."""


class TlsContext:
    """What connections are encrypted with.

    Args:
        config: The files, both given.

    Raises:
        ConfigError: As ``reload``.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._loaded: Fingerprint = ()
        self.expires_at_s = 0.0
        """End of the certificate in use, since the epoch."""
        self._current = self._load()
        self.context = self._load()
        """For the listening socket. Its own certificate is only what it started with: see ``reload``."""
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Reads the files again. New connections get what they have now, open ones go on with what they had.

        Raises:
            ConfigError: A file cannot be read or used, or the two do not belong together; the old pair stays in use.
        """
        self._current = self._load()

    def reload_if_changed(self) -> bool:
        """As ``reload``, if a file is not the one that was loaded. Returns whether it did.

        Raises:
            ConfigError: As ``reload``; asked again, it tries again.
        """
        if self._fingerprint() == self._loaded:
            return False
        self.reload()
        return True

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        """Raises: ConfigError."""
        seen = self._fingerprint()
        certificate, private_key = self._config.certificate, self._config.private_key
        _check_pem("tls.certificate", certificate, "CERTIFICATE")
        _check_pem("tls.private_key", private_key, "PRIVATE KEY")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = MINIMUM_VERSION
        context.set_alpn_protocols(ALPN)
        try:
            context.load_cert_chain(certificate, private_key, password=self._refuse_password)
        except OSError as error:  # what OpenSSL finds wrong is one too
            raise ConfigError(_words(self._config, error)) from error
        self._loaded = seen
        self.expires_at_s = expires_at_s(Path(certificate))
        return context

    def _refuse_password(self) -> str:
        """In place of OpenSSL's own question on the terminal. Raises: ConfigError."""
        raise ConfigError(
            f"tls.private_key: {self._config.private_key} is encrypted, and a service that starts on its own has nobody"
            " to ask for the password; decrypt it (openssl pkey -in KEY -out NEW), readable only for the service's user"
        )

    def _fingerprint(self) -> Fingerprint:
        """Raises: ConfigError: a file is not there."""
        pairs = (("tls.certificate", self._config.certificate), ("tls.private_key", self._config.private_key))
        return tuple(_identity(field, path) for field, path in pairs)


def _identity(field: str, path: str) -> tuple[int, int, int]:
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise _unreadable(field, path, error) from error
    return status.st_ino, status.st_size, status.st_mtime_ns


def _check_pem(field: str, path: str, kind: str) -> None:
    """Raises: ConfigError: the file cannot be read or has nothing of that kind in it."""
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
    except (OSError, ValueError) as error:
        raise _unreadable(field, path, error) from error
    headers = [line for line in text.splitlines() if line.startswith("-----BEGIN ")]
    if not any(line.rstrip("- ").endswith(kind) for line in headers):
        raise ConfigError(f"{field}: {path} has no {kind.lower()} in it, allowed: PEM with -----BEGIN … {kind}-----")


def _unreadable(field: str, path: str, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigError(f"{field}: {path}: cannot be read: {reason}")


def _words(config: TlsConfig, error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    if reason == "KEY_VALUES_MISMATCH":
        return f"tls.private_key: {config.private_key} is not the key of the certificate {config.certificate}"
    both = f"{config.certificate} and {config.private_key}"
    return f"tls.certificate, tls.private_key: {both} cannot be used: {reason or error}"
