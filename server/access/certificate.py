"""When a certificate expires: for the metrics page and for the doctor."""

import ssl
from pathlib import Path

from server.errors import ConfigError


def expires_at_s(path: Path) -> float:
    """End of validity of the first certificate of a PEM file, which is the service's own: seconds since the epoch.

    Raises:
        ConfigError: The file cannot be read or its first entry is no certificate.
    """
    try:
        # The interpreter's own decoder has no public name for a certificate at hand; only one of a peer has.
        decoded = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
        return float(ssl.cert_time_to_seconds(decoded["notAfter"]))
    except (OSError, ValueError, LookupError) as error:
        raise ConfigError(f"tls.certificate: {path}: cannot be read as a certificate: {error}") from error
