"""Certificates of one's own, for tests of TLS."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from server.configuration.config import TlsConfig

SECRET = serialization.BestAvailableEncryption(b"secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A self-signed certificate for localhost and 127.0.0.1, and its key, as PEM."""

    certificate: bytes
    private_key: bytes
    encrypted_key: bytes
    """The same key under the password ``secret``."""
    old_encrypted_key: bytes
    """The same in the format of old OpenSSL."""
    serial: int

    def write(self, folder: Path) -> TlsConfig:
        """As ``server.crt`` and ``server.key``."""
        certificate, private_key = folder / "server.crt", folder / "server.key"
        certificate.write_bytes(self.certificate)
        private_key.write_bytes(self.private_key)
        return TlsConfig(certificate=str(certificate), private_key=str(private_key))

    def trusting(self) -> ssl.SSLContext:
        """For a client that trusts this certificate alone."""
        return ssl.create_default_context(cadata=self.certificate.decode())


def make_pair(name: str = "localhost") -> Pair:
    """A new one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        private_key=_key_pem(key, serialization.NoEncryption()),
        encrypted_key=_key_pem(key, SECRET),
        old_encrypted_key=_key_pem(key, SECRET, serialization.PrivateFormat.TraditionalOpenSSL),
        serial=certificate.serial_number,
    )


def _key_pem(
    key: ec.EllipticCurvePrivateKey,
    encryption: serialization.KeySerializationEncryption,
    form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, encryption)
