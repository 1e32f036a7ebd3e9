"""A real service for the SDKs, and the SDKs themselves if they are there."""

from importlib.util import find_spec

import pytest

from tests.e2e.conftest import service_url

__all__ = ["service_url"]

collect_ignore = [] if find_spec("deepgram") else ["test_deepgram.py", "test_deepgram_types.py", "deepgram_sdk.py"]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK offers no way to keep it from a proxy of the environment."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
