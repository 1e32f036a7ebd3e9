"""``moorage mic`` as a user runs it, with a library that plays samples in place of a device."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus

import numpy as np
import pytest
import typer
from typer.testing import CliRunner
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from clients.mic import command as mic
from clients.mic.audio_source import NoMicrophone
from tests.support.fake_portaudio import FakePortAudio, FakeStream, device
from tests.support.results import metadata, results

DEVICES = (device("HDMI", channels=0), device("Yeti USB", rate=16_000.0))


class PlayingPortAudio(FakePortAudio):
    """Records half a second, then interrupts this process as Ctrl-C does, and once again if it is told to."""

    def __init__(self) -> None:
        super().__init__(devices=DEVICES)
        self.done, self.again = threading.Event(), threading.Event()
        self.before = signal.getsignal(signal.SIGINT)

    def InputStream(self, **options: object) -> FakeStream:
        stream = super().InputStream(**options)
        self.player = threading.Thread(target=self._play, args=(stream,))
        self.player.start()
        return stream

    def _play(self, stream: FakeStream) -> None:
        for _ in range(12):
            stream.record(np.full((640, 1), 0.25, np.float32))
        while "mic" not in getattr(signal.getsignal(signal.SIGINT), "__module__", ""):
            if self.done.wait(0.002):
                return
        if self.done.is_set():
            return  # nobody listens to signals any more
        os.kill(os.getpid(), signal.SIGINT)
        self.done.wait(30.0)
        if self.again.is_set():
            os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def peer(
    script: Callable[[ServerConnection], None],
    refuse: Callable[[ServerConnection, Request], Response | None] | None = None,
) -> Iterator[str]:
    with serve(script, "127.0.0.1", 0, process_request=refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def count(socket: ServerConnection) -> None:
    """Answers with the number of samples, as a service does."""
    n_samples = 0
    for message in socket:
        if isinstance(message, str):
            assert json.loads(message) == {"type": "CloseStream"}
            break
        n_samples += len(message) // 2
    socket.send(results(f"{n_samples} samples.", is_final=True))
    socket.send(metadata())


def moorage_mic(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    cli = typer.Typer(add_completion=False, rich_markup_mode=None)
    cli.command()(mic.command)
    result = CliRunner().invoke(cli, arguments, env=dict(environment or {}))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def portaudio(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayingPortAudio]:
    library = PlayingPortAudio()
    monkeypatch.setattr(mic, "load_portaudio", lambda: library)
    yield library
    library.done.set()
    if library.streams:
        library.player.join()
    assert signal.getsignal(signal.SIGINT) is library.before


def test_ctrl_c_ends_with_the_last_final(portaudio: PlayingPortAudio) -> None:
    with peer(count) as url:
        code, out, errors = moorage_mic("--url", url)
    assert (code, out) == (0, "7680 samples.\n")
    assert errors == "listening to Yeti USB, 16000 samples a second; Ctrl-C ends\n"
    assert not portaudio.streams[0].is_running


def test_a_second_ctrl_c_ends_at_once(portaudio: PlayingPortAudio) -> None:
    def never_answer(socket: ServerConnection) -> None:
        for message in socket:
            if isinstance(message, str):
                portaudio.again.set()
                portaudio.done.set()

    with peer(never_answer) as url:
        code, out, _ = moorage_mic("--url", url, "--device", "yeti")
    assert (code, out) == (130, "")
    assert not portaudio.streams[0].is_running


def test_microphones_are_listed(portaudio: PlayingPortAudio) -> None:
    code, out, _ = moorage_mic("--list-devices")
    assert code == 0
    assert "Yeti USB" in out
    assert "HDMI" not in out
    assert portaudio.streams == []


def test_a_device_that_is_not_there_is_told(portaudio: PlayingPortAudio) -> None:
    code, out, errors = moorage_mic("--device", "7")
    assert (code, out, errors) == (3, "", "'7' is none of the microphones: 1 Yeti USB (ALSA)\n")


def test_without_portaudio_there_is_a_message_and_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NoMicrophone("the PortAudio library is not installed: …")

    monkeypatch.setattr(mic, "load_portaudio", fail)
    for arguments in ([], ["--list-devices"]):
        assert moorage_mic(*arguments) == (3, "", "the PortAudio library is not installed: …\n")


def test_a_wrong_key_is_one_line_and_its_exit_code(portaudio: PlayingPortAudio) -> None:
    shown: list[str | None] = []

    def refuse(socket: ServerConnection, request: Request) -> Response:
        shown.append(request.headers.get("Authorization"))
        return socket.respond(HTTPStatus.UNAUTHORIZED, "no such key\n")

    portaudio.done.set()  # no Ctrl-C
    with peer(count, refuse) as url:
        code, out, errors = moorage_mic("--url", url, environment={"MOORAGE_KEY": "k1"})
    assert (code, out, errors) == (4, "", "refused with 401: no such key\n")
    assert shown == ["Token k1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--key", "a b"], "the key must be printable ASCII"),
        (["--ca", "nowhere.pem", "--url", "wss://h"], "no certificates can be read"),
        (["--sample-rate", "192000"], "Invalid value for '--sample-rate'"),
    ],
)
def test_options_that_cannot_be_are_refused(portaudio: PlayingPortAudio, arguments: list[str], message: str) -> None:
    code, _, errors = moorage_mic(*arguments)
    assert code == 2
    assert message in " ".join(errors.split())
    assert portaudio.streams == []
