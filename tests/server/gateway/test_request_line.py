import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.gateway.request_line import MAX_LINE_BYTES, Target, target


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (b"GET /v1/listen?encoding=linear16 HTTP/1.1\r\n", Target.LISTEN),
        (b"GET / HTTP/1.1\r\n", Target.LISTEN),
        (b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n", Target.LISTEN),
        (b"GET /v2x HTTP/1.1\r\n", Target.LISTEN),
        (b"GET /v1/v2 HTTP/1.1\r\n", Target.LISTEN),
        (b"GET /v2 HTTP/1.1\r\n", Target.REST),
        (b"GET /v2?x HTTP/1.1\r\n", Target.REST),
        (b"HEAD /v2/health/live HTTP/1.1\r\n", Target.REST),
        (b"GET /v2/models/m HTTP/1.1\n", Target.REST),
        (b"POST /v1/listen HTTP/1.1\r\n", Target.REST),
        (b"POST / HTTP/1.1\r\n", Target.REST),
        (b"OPTIONS * HTTP/1.1\r\n", Target.REST),
        (b"PRI * HTTP/2.0\r\n", Target.REST),
        (b"\r\n", Target.LISTEN),
        (b"get / HTTP/1.1\r\n", Target.LISTEN),
        (b"\x16\x03\x01\x02\x00\n", Target.LISTEN),
        (b"POST", None),
        (b"", None),
        (b"G" * (MAX_LINE_BYTES - 1), None),
        (b"G" * MAX_LINE_BYTES, Target.LISTEN),
    ],
)
def test_who_takes_a_connection(seen: bytes, expected: Target | None) -> None:
    assert target(seen) is expected


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_what_is_certain_stays_so_whatever_follows(seen: bytes, more: bytes) -> None:
    certain = target(seen)
    if certain is not None:
        assert target(seen + more) is certain
