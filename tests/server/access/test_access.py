"""Access: keys, what each may take, web pages. Time is an argument."""

import hashlib

import pytest

from server.access.access import BURST_NS, AccessControl, Credentials, Grant, warnings_of
from server.configuration.config import AccessConfig, AccessKey, MoorageConfig, ServerConfig, TlsConfig
from server.errors import KeyLimit, OriginRefused, Unauthorized

KEY, OTHER = "moorage_0123456789abcdef", "moorage_fedcba9876543210"
SECOND_NS = 1_000_000_000


def access_key(key: str = KEY, *, name: str = "team", streams: int = 0, per_minute: float = 0.0) -> AccessKey:
    return AccessKey(
        name=name,
        sha256=hashlib.sha256(key.encode()).hexdigest(),
        max_streams=streams,
        max_audio_s_per_minute=per_minute,
    )


def control(*keys: AccessKey, origins: tuple[str, ...] = (), open_metrics: bool = False) -> AccessControl:
    return AccessControl(AccessConfig(keys=keys, allowed_origins=origins, open_metrics=open_metrics))


def token(key: str = KEY) -> Credentials:
    return Credentials(authorization=f"Token {key}")


def page(origin: str | None, host: str | None = "moorage.example", key: str | None = None) -> Credentials:
    return Credentials(origin=origin, host=host, subprotocols=() if key is None else ("token", key))


def admit(access: AccessControl, request: Credentials | None = None, sequences: int = 1, at_ns: int = 0) -> Grant:
    return access.admit(request or token(), sequences, at_ns)


class TestKeys:
    @pytest.mark.parametrize(
        "request_",
        [
            Credentials(authorization=f"Token {KEY}"),
            Credentials(authorization=f"token   {KEY} "),
            Credentials(authorization=f"Bearer {KEY}"),
            Credentials(subprotocols=("token", KEY)),
            Credentials(subprotocols=("chat", "Bearer", KEY)),
        ],
        ids=lambda request: f"{request.authorization} {request.subprotocols}",
    )
    def test_each_way_to_show_it(self, request_: Credentials) -> None:
        assert admit(control(access_key(OTHER, name="else"), access_key()), request_).key_name == "team"

    @pytest.mark.parametrize(
        "request_",
        [
            Credentials(),
            token(OTHER),
            token(KEY[:-1]),
            token(KEY + "0"),
            token(""),
            token(KEY.upper()),
            Credentials(authorization=KEY),
            Credentials(authorization=f"Basic {KEY}"),
            Credentials(authorization="Token"),
            Credentials(authorization=""),
            Credentials(subprotocols=(KEY,)),
            Credentials(subprotocols=("token",)),
            Credentials(subprotocols=("token", OTHER, KEY)),
            Credentials(authorization=f"Token {OTHER}", subprotocols=("token", KEY)),
            Credentials(authorization="Token \udcff\x00ü"),
            Credentials(authorization=f"Token {hashlib.sha256(KEY.encode()).hexdigest()}"),
        ],
        ids=repr,
    )
    def test_anything_else_is_refused(self, request_: Credentials) -> None:
        access = control(access_key())
        with pytest.raises(Unauthorized) as caught:
            admit(access, request_)
        assert KEY not in str(caught.value)
        for check in (access.check, access.check_page):
            with pytest.raises(Unauthorized):
                check(request_)
        assert access.streams() == {"team": 0}

    def test_no_key_and_a_wrong_key_have_their_own_words(self) -> None:
        with pytest.raises(Unauthorized, match=r"an API key is needed: as header Authorization: Token KEY"):
            admit(control(access_key()), Credentials())
        with pytest.raises(Unauthorized, match="not known"):
            admit(control(access_key()), token(OTHER))
        with pytest.raises(Unauthorized, match="allowed: Token KEY, Bearer KEY"):
            admit(control(access_key()), Credentials(authorization="Digest x"))

    def test_an_open_service_takes_anybody_and_ignores_keys(self) -> None:
        access = control()
        for request in (Credentials(), token(), token("")):
            assert admit(access, request).key_name is None
            access.check(request)
            access.check_page(request)

    def test_credentials_never_show_the_key(self) -> None:
        request = Credentials(authorization=f"Token {KEY}", subprotocols=("token", KEY), origin="https://a", host="b")
        assert KEY not in repr(request)
        assert KEY not in str([request])
        assert access_key().sha256 not in repr(AccessConfig(keys=(access_key(),)))

    def test_open_metrics_need_no_key_but_streams_do(self) -> None:
        access = control(access_key(), open_metrics=True)
        access.check_page(Credentials())
        for verb in (admit, AccessControl.check):
            with pytest.raises(Unauthorized):
                verb(access, Credentials())

    def test_with_a_key_it_is_checked_without_taking_anything(self) -> None:
        access = control(access_key(streams=1))
        admit(access)
        access.check(token())
        access.check_page(token())


class TestHeaders:
    def test_each_is_read(self) -> None:
        headers = {
            "Authorization": ["Token a"],
            "Origin": ["https://x"],
            "Host": ["y:1"],
            "Sec-WebSocket-Protocol": ["token , k", "chat"],
        }
        assert Credentials.of_headers(lambda name: headers.get(name, [])) == Credentials(
            authorization="Token a", origin="https://x", host="y:1", subprotocols=("token", "k", "chat")
        )

    def test_none_is_there(self) -> None:
        assert Credentials.of_headers(lambda name: []) == Credentials()

    @pytest.mark.parametrize("name", ["Authorization", "Origin"])
    def test_two_values_fit_nothing(self, name: str) -> None:
        good = {"Authorization": f"Token {KEY}", "Origin": "https://moorage.example", "Host": "moorage.example"}
        access = control(access_key())
        admit(access, Credentials.of_headers(lambda each: [good[each]] if each in good else []))
        with pytest.raises((Unauthorized, OriginRefused)):
            admit(
                access, Credentials.of_headers(lambda each: [good[each]] * (1 + (each == name)) if each in good else [])
            )


class TestStreams:
    def test_the_limit_counts_sequences_and_is_given_back(self) -> None:
        access = control(access_key(streams=3))
        stereo, mono = admit(access, sequences=2), admit(access)
        assert access.streams() == {"team": 3}
        with pytest.raises(KeyLimit, match=r"'team' has 3 of its 3 streams open, 1 more") as caught:
            admit(access)
        assert caught.value.retry_after_s >= 1
        mono.release()
        with pytest.raises(KeyLimit):
            admit(access, sequences=2)
        stereo.release()
        admit(access, sequences=3)

    def test_a_release_counts_once(self) -> None:
        access = control(access_key(streams=2))
        first, second = admit(access), admit(access)
        for _ in range(3):
            first.release()
        assert access.streams() == {"team": 1}
        admit(access)
        with pytest.raises(KeyLimit):
            admit(access)
        second.release()

    def test_keys_do_not_count_for_each_other(self) -> None:
        access = control(access_key(streams=1), access_key(OTHER, name="else", streams=1))
        admit(access)
        assert admit(access, token(OTHER)).key_name == "else"
        assert access.streams() == {"team": 1, "else": 1}

    def test_without_a_limit_they_are_counted_all_the_same(self) -> None:
        access = control(access_key())
        grants = [admit(access) for _ in range(100)]
        assert access.streams() == {"team": 100}
        for grant in grants:
            grant.release()
        assert access.streams() == {"team": 0}

    def test_a_grant_of_an_open_service_costs_nothing(self) -> None:
        grant = admit(control(), Credentials())
        assert grant.spend(1e9, 0) == 0.0
        grant.release()


class TestAudioBudget:
    def test_a_minute_at_once_then_the_rate(self) -> None:
        grant = admit(control(access_key(per_minute=120.0)))
        assert grant.spend(120.0, 0) == 0.0
        assert grant.spend(1.0, 0) == 0.5
        assert grant.spend(1.0, 0) == 1.0
        assert grant.spend(0.0, SECOND_NS) == 0.0
        assert grant.spend(2.0, SECOND_NS) == 1.0

    def test_real_time_is_never_slowed(self) -> None:
        grant = admit(control(access_key(per_minute=60.0)))
        waits = [grant.spend(0.25, at * SECOND_NS // 4) for at in range(4 * 3600)]
        assert max(waits) == 0.0

    def test_waiting_as_told_keeps_to_the_rate(self) -> None:
        grant = admit(control(access_key(per_minute=90.0)))
        now_ns, audio_s = 0, 0.0
        while now_ns < 600 * SECOND_NS:
            now_ns += round(grant.spend(0.5, now_ns) * 1e9)
            audio_s += 0.5
        assert audio_s == pytest.approx(90.0 * 11, rel=0.01)

    def test_credit_grows_to_one_minute_and_no_further(self) -> None:
        grant = admit(control(access_key(per_minute=60.0)))
        grant.spend(60.0, 0)
        assert grant.spend(60.0, 24 * 3600 * SECOND_NS) == 0.0
        assert grant.spend(1.0, 24 * 3600 * SECOND_NS) == 1.0

    def test_the_streams_of_a_key_share_it(self) -> None:
        access = control(access_key(per_minute=60.0))
        one, two = admit(access), admit(access)
        assert one.spend(59.0, 0) == 0.0
        assert two.spend(2.0, 0) == 1.0

    def test_a_key_without_credit_opens_no_stream(self) -> None:
        access = control(access_key(per_minute=60.0))
        grant = admit(access)
        grant.spend(70.0, 0)
        with pytest.raises(KeyLimit, match=r"'team' has used up its 60 seconds of audio per minute") as caught:
            admit(access, at_ns=0)
        assert caught.value.retry_after_s == 10
        with pytest.raises(KeyLimit) as caught:
            admit(access, at_ns=10 * SECOND_NS)
        assert caught.value.retry_after_s == 1
        admit(access, at_ns=10 * SECOND_NS + 1)

    def test_what_was_spent_stays_spent_after_the_release(self) -> None:
        access = control(access_key(per_minute=60.0))
        grant = admit(access)
        grant.spend(60.0, 0)
        grant.release()
        with pytest.raises(KeyLimit):
            admit(access)

    def test_the_debt_is_whole_nanoseconds(self) -> None:
        """Sums of fractions would drift over days of small pieces."""
        grant = admit(control(access_key(per_minute=60.0)))
        for _ in range(600):
            grant.spend(0.1, 0)
        assert grant.spend(0.0, 0) == 0.0
        assert grant.spend(0.1, 0) == 0.1
        assert BURST_NS == 60 * SECOND_NS


class TestConfigure:
    def test_a_key_that_stays_keeps_its_streams(self) -> None:
        access = control(access_key(streams=2))
        grant = admit(access)
        access.configure(AccessConfig(keys=(access_key(OTHER, streams=1),)))
        with pytest.raises(Unauthorized):
            admit(access, token(KEY))
        with pytest.raises(KeyLimit):
            admit(access, token(OTHER))
        grant.release()
        admit(access, token(OTHER))

    def test_a_key_that_goes_is_gone_and_its_grants_end_quietly(self) -> None:
        access = control(access_key(), access_key(OTHER, name="else"))
        grant = admit(access)
        access.configure(AccessConfig(keys=(access_key(OTHER, name="else"),)))
        with pytest.raises(Unauthorized):
            admit(access)
        grant.release()
        assert access.streams() == {"else": 0}


class TestOrigins:
    @pytest.mark.parametrize(
        ("origin", "host"),
        [
            (None, None),
            ("https://moorage.example", "moorage.example"),
            ("https://Moorage.Example", "moorage.example:443"),
            ("https://moorage.example:443", "moorage.example"),
            ("http://moorage.example", "moorage.example:80"),
            ("http://moorage.example:8765", "MOORAGE.example:8765"),
            ("http://[::1]:8765", "[::1]:8765"),
        ],
    )
    def test_no_page_and_pages_of_its_own_may(self, origin: str | None, host: str | None) -> None:
        admit(control(access_key()), page(origin, host, KEY))

    @pytest.mark.parametrize(
        ("origin", "host"),
        [
            ("https://evil.example", "moorage.example"),
            ("https://moorage.example:8443", "moorage.example"),
            ("http://moorage.example", "moorage.example:8765"),
            ("https://moorage.example.evil.example", "moorage.example"),
            ("https://moorage.example", None),
            ("null", "null"),
            ("file://", ""),
            ("ftp://moorage.example", "moorage.example"),
            ("https://", ""),
            ("https://moorage.example:x", "moorage.example"),
            ("https://moorage.example", "moorage.example:99999"),
            ("https://[", "["),
            ("", "moorage.example"),
            ("https://a, https://a", "a"),
        ],
    )
    def test_pages_from_elsewhere_may_not(self, origin: str, host: str | None) -> None:
        with pytest.raises(OriginRefused, match=r"listed in access\.allowed_origins"):
            admit(control(access_key()), page(origin, host, KEY))

    def test_listed_ones_may_exactly(self) -> None:
        access = control(access_key(), origins=("https://app.example", "http://localhost:3000"))
        for origin in ("https://app.example", "https://APP.example", "http://localhost:3000"):
            admit(access, page(origin, key=KEY))
        for origin in ("http://app.example", "https://app.example:444", "https://x.app.example", "http://localhost"):
            with pytest.raises(OriginRefused):
                admit(access, page(origin, key=KEY))

    @pytest.mark.parametrize("origin", ["https://any.example", "null", "file://", "?"])
    def test_a_star_is_all(self, origin: str) -> None:
        admit(control(origins=("*",)), page(origin))

    @pytest.mark.parametrize("name", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "192.168.1.5:8765"])
    def test_an_open_service_trusts_pages_of_its_own_address(self, name: str) -> None:
        admit(control(), page(f"http://{name}", name))

    @pytest.mark.parametrize("name", ["evil.example:8765", "localhost.evil.example:8765", "127.0.0.1.evil.example"])
    def test_an_open_service_does_not_trust_names(self, name: str) -> None:
        """DNS rebinding: the name of a page of theirs is made to point to 127.0.0.1."""
        with pytest.raises(OriginRefused):
            admit(control(), page(f"http://{name}", name))
        admit(control(origins=(f"http://{name}",)), page(f"http://{name}", name))

    def test_what_is_shown_of_an_origin_is_short(self) -> None:
        with pytest.raises(OriginRefused) as caught:
            admit(control(), page("x" * 5000))
        assert len(str(caught.value)) < 250

    def test_the_origin_is_looked_at_before_the_key(self) -> None:
        for verb in (admit, AccessControl.check):
            with pytest.raises(OriginRefused):
                verb(control(access_key()), page("https://evil.example"))
        control(access_key()).check_page(page("https://evil.example", key=KEY))


class TestWarnings:
    def config(self, host: str, *, keys: bool = False, tls: bool = False) -> MoorageConfig:
        access = AccessConfig(keys=(access_key(),)) if keys else AccessConfig(allow_anonymous=True)
        encryption = TlsConfig(certificate="c", private_key="k") if tls else TlsConfig()
        return MoorageConfig(server=ServerConfig(host=host), access=access, tls=encryption)

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
    def test_none_on_loopback(self, host: str) -> None:
        assert warnings_of(self.config(host)) == []

    def test_without_keys_and_without_tls(self) -> None:
        no_keys, no_tls = warnings_of(self.config("0.0.0.0"))
        assert no_keys.startswith("the service listens on 0.0.0.0 without API keys: ")
        assert no_tls.startswith("the service listens on 0.0.0.0 without TLS: ")
        assert warnings_of(self.config("0.0.0.0", keys=True)) == [no_tls]
        assert warnings_of(self.config("0.0.0.0", keys=True, tls=True)) == []
