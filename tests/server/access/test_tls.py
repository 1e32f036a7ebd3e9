"""TLS: pairs that cannot be used are named, and a new one is taken without a restart. Over real sockets."""

import asyncio
import os
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509

from server.access.tls import TlsContext
from server.configuration.config import TlsConfig
from server.errors import ConfigError
from tests.support.certificates import make_pair

FIRST, SECOND = make_pair(), make_pair()


def fault(config: TlsConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        TlsContext(config)
    return str(caught.value)


@dataclass(kw_only=True)
class Echo:
    """One connection to an echo server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def serial(self) -> int:
        """Of the certificate that it was shown."""
        connection: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        shown = connection.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number

    async def echoes(self) -> bool:
        self.writer.write(b"x\n")
        return await self.reader.readline() == b"x\n"


@asynccontextmanager
async def echoing(tls: TlsContext) -> AsyncIterator[int]:
    """The port of a server that says back every line."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.context, ssl_handshake_timeout=5)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def connected(port: int, context: ssl.SSLContext, name: str | None = "localhost") -> AsyncIterator[Echo]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        yield Echo(reader=reader, writer=writer)
    finally:
        writer.close()
        await writer.wait_closed()


class TestReload:
    async def test_new_connections_get_the_new_certificate_and_open_ones_go_on(self, tmp_path: Path) -> None:
        tls = TlsContext(FIRST.write(tmp_path))
        async with echoing(tls) as port, connected(port, FIRST.trusting()) as old:
            assert old.serial == FIRST.serial
            assert await old.echoes()
            SECOND.write(tmp_path)
            tls.reload()
            async with connected(port, SECOND.trusting()) as new:
                assert new.serial == SECOND.serial
                assert await new.echoes()
            assert await old.echoes()
            with pytest.raises(ssl.SSLCertVerificationError):
                async with connected(port, FIRST.trusting()):
                    pass

    @pytest.mark.parametrize("name", ["localhost", "127.0.0.1", ""])
    async def test_also_for_clients_that_name_no_host(self, tmp_path: Path, name: str) -> None:
        """An address is not sent as SNI, nor is an empty name."""
        tls = TlsContext(FIRST.write(tmp_path))
        SECOND.write(tmp_path)
        tls.reload()
        context = SECOND.trusting()
        context.check_hostname = bool(name)
        async with echoing(tls) as port, connected(port, context, name) as new:
            assert new.serial == SECOND.serial

    async def test_a_pair_that_cannot_be_used_changes_nothing(self, tmp_path: Path) -> None:
        tls = TlsContext(FIRST.write(tmp_path))
        replace(FIRST, certificate=SECOND.certificate).write(tmp_path)
        async with echoing(tls) as port:
            for _ in range(2):
                with pytest.raises(ConfigError, match="is not the key of"):
                    tls.reload()
                with pytest.raises(ConfigError, match="is not the key of"):
                    tls.reload_if_changed()
                async with connected(port, FIRST.trusting()) as still:
                    assert still.serial == FIRST.serial
            SECOND.write(tmp_path)
            assert tls.reload_if_changed()
            async with connected(port, SECOND.trusting()) as new:
                assert new.serial == SECOND.serial

    def test_only_a_change_reloads(self, tmp_path: Path) -> None:
        config = FIRST.write(tmp_path)
        tls = TlsContext(config)
        assert not tls.reload_if_changed()
        SECOND.write(tmp_path)
        assert tls.reload_if_changed()
        assert not tls.reload_if_changed()

    def test_a_link_that_points_elsewhere_is_a_change(self, tmp_path: Path) -> None:
        """As certbot and Kubernetes replace certificates, with files older than the ones before."""
        for name, pair in (("new", SECOND), ("old", FIRST)):
            (tmp_path / name).mkdir()
            pair.write(tmp_path / name)
        current = tmp_path / "current"
        current.symlink_to(tmp_path / "old")
        config = TlsConfig(certificate=str(current / "server.crt"), private_key=str(current / "server.key"))
        tls = TlsContext(config)
        (tmp_path / "next").symlink_to(tmp_path / "new")
        os.replace(tmp_path / "next", current)
        assert tls.reload_if_changed()

    def test_files_that_vanish_are_told_and_change_nothing(self, tmp_path: Path) -> None:
        config = FIRST.write(tmp_path)
        tls = TlsContext(config)
        Path(config.private_key).unlink()
        with pytest.raises(ConfigError, match=r"tls\.private_key: .*server\.key: cannot be read: No such file"):
            tls.reload_if_changed()
        FIRST.write(tmp_path)
        assert tls.reload_if_changed()


class TestProtocol:
    async def test_nothing_older_than_1_2(self, tmp_path: Path) -> None:
        tls = TlsContext(FIRST.write(tmp_path))
        assert tls.context.minimum_version == ssl.TLSVersion.TLSv1_2
        old = FIRST.trusting()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        async with echoing(tls) as port:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                async with connected(port, old):
                    pass
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = FIRST.trusting()
                context.minimum_version = context.maximum_version = version
                async with connected(port, context) as each:
                    assert await each.echoes()

    async def test_http_2_is_not_chosen(self, tmp_path: Path) -> None:
        tls = TlsContext(FIRST.write(tmp_path))
        context = FIRST.trusting()
        context.set_alpn_protocols(["h2", "http/1.1"])
        async with echoing(tls) as port, connected(port, context) as each:
            assert each.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


class TestFaults:
    def replaced(self, folder: Path, **files: bytes) -> TlsConfig:
        config = FIRST.write(folder)
        for field, content in files.items():
            Path(getattr(config, field)).write_bytes(content)
        return config

    @pytest.mark.parametrize("field", ["certificate", "private_key"])
    def test_a_file_that_is_not_there(self, tmp_path: Path, field: str) -> None:
        config = FIRST.write(tmp_path)
        absent = str(tmp_path / "absent.pem")
        assert fault(config.model_copy(update={field: absent})) == (
            f"tls.{field}: {absent}: cannot be read: No such file or directory"
        )

    @pytest.mark.parametrize("path", ["/", "a\0b"])
    def test_a_path_that_is_no_file(self, tmp_path: Path, path: str) -> None:
        config = FIRST.write(tmp_path).model_copy(update={"certificate": path})
        assert fault(config).startswith(f"tls.certificate: {path}: cannot be read: ")

    def test_a_key_of_another_certificate(self, tmp_path: Path) -> None:
        config = self.replaced(tmp_path, private_key=SECOND.private_key)
        assert fault(config) == (
            f"tls.private_key: {config.private_key} is not the key of the certificate {config.certificate}"
        )

    def test_an_encrypted_key_is_not_asked_for(self, tmp_path: Path) -> None:
        said = fault(self.replaced(tmp_path, private_key=FIRST.encrypted_key))
        assert said.startswith("tls.private_key: ")
        assert "is encrypted" in said
        assert "openssl pkey" in said

    def test_also_one_encrypted_the_old_way(self, tmp_path: Path) -> None:
        assert "is encrypted" in fault(self.replaced(tmp_path, private_key=FIRST.old_encrypted_key))

    @pytest.mark.parametrize("content", [b"", b"no PEM", b"\xff\xfe\x00", FIRST.private_key])
    def test_no_certificate_in_its_file(self, tmp_path: Path, content: bytes) -> None:
        config = self.replaced(tmp_path, certificate=content)
        assert fault(config) == (
            f"tls.certificate: {config.certificate} has no certificate in it, "
            "allowed: PEM with -----BEGIN … CERTIFICATE-----"
        )

    @pytest.mark.parametrize("content", [b"", b"no PEM", FIRST.certificate])
    def test_no_key_in_its_file(self, tmp_path: Path, content: bytes) -> None:
        said = fault(self.replaced(tmp_path, private_key=content))
        assert said.startswith("tls.private_key: ")
        assert "has no private key in it" in said

    @pytest.mark.parametrize("field", ["certificate", "private_key"])
    def test_damaged_content(self, tmp_path: Path, field: str) -> None:
        lines = getattr(FIRST, field).splitlines()
        damaged = b"\n".join([lines[0], b"A" * 64, lines[-1], b""])
        said = fault(self.replaced(tmp_path, **{field: damaged}))
        assert said.startswith("tls.certificate, tls.private_key: ")
        assert "cannot be used" in said

    def test_a_key_file_may_have_parameters_before_the_key(self, tmp_path: Path) -> None:
        """As ``openssl ecparam -genkey`` writes them."""
        parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
        TlsContext(self.replaced(tmp_path, private_key=parameters + FIRST.private_key))

    def test_one_file_for_both(self, tmp_path: Path) -> None:
        config = self.replaced(tmp_path, certificate=FIRST.certificate + FIRST.private_key)
        TlsContext(config.model_copy(update={"private_key": config.certificate}))
