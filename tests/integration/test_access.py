"""Keys, origins and TLS over real sockets: who is refused is refused before the upgrade, and takes nothing."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from server.access.keys import hash_of
from server.app import Service, build_service
from server.configuration.config import AccessConfig, AccessKey, MoorageConfig, TlsConfig
from server.errors import ConfigError
from tests.support.accumulator_model import exact_audio, summary
from tests.support.certificates import Pair, make_pair
from tests.support.engines import live_only
from tests.support.raw_socket import UPGRADE, answer, raw_socket, request
from tests.support.service import Client, address, client, serving, slots_used
from tests.support.wire import linear16

KEY, OTHER = "moorage_" + "5" * 48, "moorage_" + "6" * 48
TOKEN: dict[str, Any] = {"additional_headers": {"Authorization": f"Token {KEY}"}}
AUDIO = exact_audio(3, 1000)
DATA = linear16(AUDIO)
QUERY = "encoding=linear16&sample_rate=16000"


def keyed(**limits: Any) -> dict[str, AccessConfig]:
    """Sections of a service with two keys; ``limits`` are those of the first."""
    keys = (
        AccessKey(name="team", sha256=hash_of(KEY), **limits),
        AccessKey(name="other", sha256=hash_of(OTHER)),
    )
    return {"access": AccessConfig(keys=keys)}


async def refused(service: Service, query: str = QUERY, **options: Any) -> Response:
    """The answer to a client that is not let in."""
    with pytest.raises(InvalidStatus) as caught:
        async with client(service, query, **options):
            pass
    return caught.value.response


def said(response: Response) -> dict[str, Any]:
    body = json.loads(response.body or b"")
    assert isinstance(body, dict)
    return body


class TestKeys:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"additional_headers": {"Authorization": "Token " + OTHER[:-1]}},
            {"additional_headers": {"Authorization": f"Basic {KEY}"}},
            {"additional_headers": [("Authorization", f"Token {KEY}"), ("Authorization", f"Token {KEY}")]},
            {"subprotocols": ["token", OTHER + "x"]},
        ],
        ids=["none", "wrong", "another scheme", "two", "wrong subprotocol"],
    )
    async def test_without_a_good_one_nothing_is_upgraded(self, options: dict[str, Any]) -> None:
        async with serving(live_only(), keyed()) as service:
            response = await refused(service, **options)
            assert service.engine.stats().sequences_started == 0
            assert service.gateway.stats().refusals == {"invalid_auth": 1}
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Token"
        assert said(response)["err_code"] == "INVALID_AUTH"
        assert said(response)["request_id"] == response.headers["dg-request-id"]
        assert KEY not in str(said(response))

    @pytest.mark.parametrize(
        "options",
        [
            TOKEN,
            {"additional_headers": {"Authorization": f"Bearer {KEY}"}},
            {"subprotocols": ["token", KEY]},
            {"subprotocols": ["bearer", OTHER]},
        ],
        ids=["token", "bearer", "subprotocol", "bearer subprotocol"],
    )
    async def test_with_one_it_is_served(self, options: dict[str, Any]) -> None:
        async with serving(live_only(), keyed()) as service, client(service, QUERY, **options) as each:
            await each.send(DATA)
            assert (await each.end()).texts == [summary(AUDIO)]
            # the word is chosen, never the key: what is chosen is sent back
            assert each.socket.subprotocol == (options["subprotocols"][0] if "subprotocols" in options else None)

    async def test_it_comes_before_what_else_is_wrong(self) -> None:
        """Strangers learn nothing of the service."""
        async with serving(live_only(), keyed()) as service:
            assert (await refused(service, "sample_rate=1")).status_code == 401
            assert (await refused(service, "sample_rate=1", **TOKEN)).status_code == 400

    async def test_no_key_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, logger="server")
        async with serving(live_only(), keyed()) as service:
            await refused(service, additional_headers={"Authorization": f"Token {OTHER}x"})
            async with client(service, QUERY, **TOKEN) as each:
                await each.end()
            async with client(service, QUERY, subprotocols=["token", KEY]) as each:
                await each.send("not JSON")
                await each.to_close()
        logged = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("server"))
        for secret in (KEY, OTHER, hash_of(KEY)):
            assert secret not in logged

    async def test_pages(self) -> None:
        async with serving(live_only(), keyed()) as service:
            for path in ("/metrics", "/v1/models"):
                assert (await page(service, path)).startswith(b"HTTP/1.1 401")
                assert (await page(service, path, f"Authorization: Bearer {KEY}")).startswith(b"HTTP/1.1 200")
            for path in ("/", "/healthz", "/readyz"):
                assert (await page(service, path)).startswith(b"HTTP/1.1 200")
            assert (await page(service, "/nothing")).startswith(b"HTTP/1.1 404")
        sections = {"access": AccessConfig(keys=keyed()["access"].keys, open_metrics=True)}
        async with serving(live_only(), sections) as service:
            assert (await page(service, "/metrics")).startswith(b"HTTP/1.1 200")
            assert (await refused(service)).status_code == 401


class TestLimits:
    async def test_streams_of_a_key(self) -> None:
        async with serving(live_only(), keyed(max_streams=1)) as service:
            async with client(service, QUERY, **TOKEN) as first:
                response = await refused(service, **TOKEN)
                assert response.status_code == 429
                assert int(response.headers["Retry-After"]) >= 1
                assert said(response)["err_code"] == "TOO_MANY_REQUESTS"
                async with client(service, QUERY, subprotocols=["token", OTHER]) as other:
                    await other.send(DATA)
                    assert (await other.end()).texts == [summary(AUDIO)]
                await first.send(DATA)
                assert (await first.end()).texts == [summary(AUDIO)]
            await slots_used(service, 0)
            assert service.gateway.stats().refusals == {"key_limit": 1}
            async with client(service, QUERY, **TOKEN) as again:
                assert (await again.end()).code == 1000

    async def test_a_stream_that_is_refused_or_fails_is_given_back(self) -> None:
        """A full service, a bad handshake, a client that resets: none of them keeps a stream of the key."""
        async with serving(live_only(instances=1, slots=1), keyed(max_streams=2)) as service:
            async with client(service, QUERY, subprotocols=["token", OTHER]):
                for _ in range(3):
                    assert (await refused(service, **TOKEN)).status_code == 503
            await slots_used(service, 0)
            for _ in range(3):
                answer = await page(service, f"/v1/listen?{QUERY}", f"Authorization: Token {KEY}")
                assert answer.startswith(b"HTTP/1.1 426")
                async with client(service, QUERY, **TOKEN) as each:
                    await each.send("not JSON")
                    await each.to_close()
                async with client(service, QUERY, **TOKEN) as each:
                    await each.send(DATA)
                await slots_used(service, 0)
            async with client(service, QUERY, **TOKEN) as each:
                assert (await each.end()).code == 1000

    async def test_channels_count_as_streams(self) -> None:
        async with serving(live_only(), keyed(max_streams=1)) as service:
            response = await refused(service, f"{QUERY}&channels=2&multichannel=true", **TOKEN)
            assert response.status_code == 429
            async with client(service, f"{QUERY}&channels=2", **TOKEN) as mixed:
                assert (await mixed.end()).code == 1000

    async def test_more_audio_than_the_budget_is_read_no_faster(self) -> None:
        """A minute's budget at once, then the rest at the key's rate, every sample of it, and nobody idles out."""
        loop = asyncio.get_running_loop()
        audio = np.tile(exact_audio(3, 16_000), 4)[: 3 * 16_000 + 800]
        engine = replace(live_only(), idle_timeout_s=0.6)
        async with serving(engine, keyed(max_audio_s_per_minute=3.0)) as service:
            async with client(service, QUERY, **TOKEN) as each:
                started_s = loop.time()
                await each.send(linear16(audio))
                heard = await each.end()
                took_s = loop.time() - started_s
            assert (heard.texts, heard.code) == ([summary(audio)], 1000)
            assert took_s > 0.9, "0.05 s above the budget of 0.05 s of audio per second"

    async def test_a_key_without_budget_opens_no_stream(self) -> None:
        async with serving(live_only(), keyed(max_audio_s_per_minute=1.0)) as service:
            async with client(service, QUERY, **TOKEN) as first:
                await first.send(linear16(np.tile(AUDIO, 18)))
                response = await budget_used_up(service)
            assert response.status_code == 429
            assert int(response.headers["Retry-After"]) >= 1
            assert "1 seconds of audio per minute" in said(response)["err_msg"]
            async with client(service, QUERY, subprotocols=["token", OTHER]) as other:
                await other.send(DATA)
                assert (await other.end()).texts == [summary(AUDIO)]

    async def test_a_paced_client_that_leaves_gives_its_stream_back(self) -> None:
        async with serving(live_only(), keyed(max_streams=1, max_audio_s_per_minute=1.0)) as service:
            async with client(service, QUERY, **TOKEN) as each:
                await each.send(linear16(np.tile(AUDIO, 60)))
                await each.hears(0)
            await slots_used(service, 0)

    async def test_a_paced_client_is_told_when_the_service_stops(self) -> None:
        """It waits for its budget with half a message taken, and is answered for that all the same."""
        loop = asyncio.get_running_loop()
        times = {"drain_timeout_s": 0.2, "shutdown_timeout_s": 5.0}
        async with (
            serving(live_only(), keyed(max_audio_s_per_minute=1.0), **times) as service,
            client(service, QUERY, **TOKEN) as each,
        ):
            await each.send(linear16(np.tile(AUDIO, 60)))
            await budget_used_up(service)
            started_s = loop.time()
            await service.drain()
            heard = await each.to_close()
            assert loop.time() - started_s < 4.0
        assert heard.code == 1012
        assert len(heard.texts) == 1
        assert int(heard.texts[0].partition(":")[0]) >= 16_000


class TestReload:
    async def test_keys_are_replaced_while_clients_stream(self) -> None:
        new_key = "moorage_" + "7" * 48
        replaced = AccessConfig(keys=(AccessKey(name="new team", sha256=hash_of(new_key)),))
        async with serving(live_only(), keyed()) as service, client(service, QUERY, **TOKEN) as old:
            await old.send(DATA[:1000])
            service.reload(lambda: MoorageConfig(access=replaced))
            assert (await refused(service, **TOKEN)).status_code == 401
            headers = {"Authorization": f"Token {new_key}"}
            async with client(service, QUERY, additional_headers=headers) as new:
                assert (await new.end()).code == 1000
            await old.send(DATA[1000:])
            assert (await old.end()).texts == [summary(AUDIO)]

    async def test_a_configuration_that_cannot_be_used_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        def broken() -> MoorageConfig:
            raise ConfigError("moorage.toml: is not TOML")

        async with serving(live_only(), keyed()) as service:
            service.reload(broken)
            assert "nothing was reloaded: moorage.toml: is not TOML" in caplog.text
            async with client(service, QUERY, **TOKEN) as each:
                assert (await each.end()).code == 1000


class TestOrigins:
    async def test_pages_from_elsewhere_are_refused_by_name(self) -> None:
        async with serving() as service:
            response = await refused(service, origin="https://evil.example")
            assert service.gateway.stats().refusals == {"origin_refused": 1}
            rebound = await refused(
                service,
                origin=f"http://evil.example:{service.gateway.port}",
                additional_headers={"X": "y"},
            )
        assert (response.status_code, rebound.status_code) == (403, 403)
        assert said(response)["err_msg"] == (
            "web pages of https://evil.example may not connect; those that may are listed in access.allowed_origins"
        )

    async def test_pages_of_its_own_and_listed_ones_may(self) -> None:
        sections = {"access": AccessConfig(allowed_origins=("https://app.example",))}
        async with serving(live_only(), sections) as service:
            for origin in (f"http://127.0.0.1:{service.gateway.port}", "https://app.example", None):
                async with client(service, QUERY, origin=origin) as each:
                    assert (await each.end()).code == 1000
            assert (await refused(service, origin="https://app.example.evil")).status_code == 403

    async def test_a_name_that_points_here_is_not_trusted(self) -> None:
        """DNS rebinding: Origin and Host agree, and both are the name of somebody else's page."""
        async with serving() as service:
            port = service.gateway.port
            lines = (f"Host: evil.example:{port}", f"Origin: http://evil.example:{port}", *UPGRADE[1:])
            said = await answer(port, request(f"/v1/listen?{QUERY}", *lines))
            assert said.startswith(b"HTTP/1.1 403")
            assert service.engine.stats().sequences_started == 0


class TestTls:
    async def test_it_is_spoken_and_the_certificate_replaced_while_clients_stream(self, tmp_path: Path) -> None:
        first, second = make_pair(), make_pair()
        sections = {"tls": first.write(tmp_path), **keyed()}
        async with serving(live_only(), sections) as service:
            url = address(service, QUERY).replace("ws://127.0.0.1", "wss://localhost")
            async with secure(url, first) as old:
                await old.send(DATA[:1000])
                second.write(tmp_path)
                service.reload(lambda: MoorageConfig.model_validate(sections))
                async with secure(url, second) as new:
                    await new.send(DATA)
                    assert (await new.end()).texts == [summary(AUDIO)]
                with pytest.raises(ssl.SSLCertVerificationError):
                    async with secure(url, first):
                        pass
                await old.send(DATA[1000:])
                assert (await old.end()).texts == [summary(AUDIO)]

    async def test_a_pair_that_cannot_be_used_is_logged_and_the_old_one_stays(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        pair = make_pair()
        async with serving(live_only(), {"tls": pair.write(tmp_path)}) as service:
            replace(pair, certificate=make_pair().certificate).write(tmp_path)
            service.reload(MoorageConfig)
            assert "is not the key of the certificate" in caplog.text
            async with secure(address(service, QUERY).replace("ws://127.0.0.1", "wss://localhost"), pair) as each:
                assert (await each.end()).code == 1000

    async def test_plain_clients_get_nothing(self, tmp_path: Path) -> None:
        async with serving(live_only(), {"tls": make_pair().write(tmp_path)}) as service:
            assert b"HTTP" not in await answer(service.gateway.port, request("/healthz"))
            assert service.gateway.sockets == set()

    async def test_a_client_that_never_finishes_tls_is_cut_off(self, tmp_path: Path) -> None:
        sections = {"tls": make_pair().write(tmp_path)}
        async with (
            serving(live_only(), sections, handshake_timeout_s=0.3) as service,
            raw_socket(service.gateway.port) as each,
        ):
            assert await each.to_close() == b""

    def test_a_certificate_that_cannot_be_used_ends_before_anything_starts(self, tmp_path: Path) -> None:
        config = MoorageConfig(tls=TlsConfig(certificate=str(tmp_path / "a"), private_key=str(tmp_path / "b")))
        with pytest.raises(ConfigError, match=r"^tls\.certificate: .*cannot be read"):
            build_service(config)


async def page(service: Service, path: str, *headers: str) -> bytes:
    """The answer to a plain GET."""
    return await answer(service.gateway.port, request(path, "Host: 127.0.0.1", *headers))


async def budget_used_up(service: Service) -> Response:
    """Asks until the first key is refused; the refusal."""
    async with asyncio.timeout(20):
        while True:
            try:
                async with client(service, QUERY, **TOKEN):
                    await asyncio.sleep(0.01)
            except InvalidStatus as error:
                return error.response


@asynccontextmanager
async def secure(url: str, pair: Pair) -> AsyncIterator[Client]:
    """A client that trusts one certificate."""
    socket = await connect(url, proxy=None, compression=None, ssl=pair.trusting(), **TOKEN)
    try:
        yield Client(socket)
    finally:
        socket.transport.abort()
        await socket.wait_closed()
