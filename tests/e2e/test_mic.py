"""A microphone on the real service: a person reads a sentence, then presses Ctrl-C."""

import asyncio
import io
import re

import pytest
from rich.console import Console

from clients.mic.session import MicSession
from clients.mic.view import MicView
from clients.word_error_rate import word_errors
from tests.support.file_source import playing
from tests.support.fixtures import fixtures


@pytest.mark.timeout(300)
async def test_what_is_said_before_ctrl_c_is_shown(service_url: str) -> None:
    speech = fixtures("utterance")[0]
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, width=200, color_system="standard")
    with playing(speech.path, speed=2.0) as source, MicView(terminal, Console(stderr=True)) as view:
        session = MicSession(source=source, view=view, url=service_url)
        running = asyncio.create_task(session.run())
        async with asyncio.timeout(250):
            while not source.played.is_set():  # noqa: ASYNC110  # another thread plays
                await asyncio.sleep(0.05)
            session.stop()
            await running
    lines = re.sub(r"\x1b\[\d*[AK]", "", out.getvalue()).replace("\r", "\n").splitlines()  # without cursor movements
    finals = [line for line in lines if "\x1b" not in line]
    assert word_errors(speech.text, " ".join(finals)).percent <= 15, out.getvalue()
    assert "\x1b[2m" in out.getvalue()  # drafts were shown on the way
    assert source.lost_s == 0.0
