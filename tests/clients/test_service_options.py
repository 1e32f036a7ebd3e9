"""Options and exit codes of the commands that speak to a service."""

from pathlib import Path

import pytest
import typer

from clients.connection import Access, ConnectionFailed, Refused
from clients.service_options import access_of, exit_code, goes_in_clear


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (429, 5), (503, 5), (400, 1), (502, 1)])
def test_a_refusal_has_its_exit_code(status: int, code: int) -> None:
    assert exit_code(Refused("refused", status=status, reason="")) == code
    assert exit_code(ConnectionFailed("nobody there")) == 1


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9911", "127.0.0.1:8765", "ws://", "nonsense", "ws://[::1", "ws://h:port", "ws://h:70000"]
)
def test_an_address_that_is_no_websocket_s_is_refused_with_what_is_allowed(url: str) -> None:
    with pytest.raises(typer.BadParameter, match="allowed: ws:// or wss://") as caught:
        access_of(url, None, None)
    assert repr(url) in caught.value.message


def test_an_empty_key_is_none() -> None:
    """``MOORAGE_KEY=`` in a file of settings."""
    assert access_of("ws://h", "", None) == Access()
    assert access_of("ws://h", "k", None) == Access(key="k")


@pytest.mark.parametrize(
    ("url", "key", "expected"),
    [
        ("ws://127.0.0.1:1", "k", False),
        ("ws://localhost:1", "k", False),
        ("ws://[::1]:1", "k", False),
        ("ws://example.org", "k", True),
        ("ws://example.org", None, False),
        ("wss://example.org", "k", False),
    ],
)
def test_a_key_goes_in_clear_beyond_this_machine_without_tls(url: str, key: str | None, expected: bool) -> None:
    assert goes_in_clear(url, Access(key=key)) is expected


def test_the_authority_is_part_of_what_is_shown() -> None:
    assert access_of("ws://h", None, None).ca_file is None
    assert Access(ca_file=Path("a.pem")).key is None
