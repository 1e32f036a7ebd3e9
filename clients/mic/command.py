"""``moorage mic``: the microphone of this machine on a service, text as it is spoken."""

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from clients.connection import HIGHEST_RATE, LOWEST_RATE, ConnectionFailed
from clients.mic.audio_source import AudioSource, NoMicrophone
from clients.mic.microphone import InputDevice, choose, input_devices, load_portaudio, recording
from clients.mic.session import MicSession
from clients.mic.view import MicView
from clients.service_options import (
    DEFAULT_URL,
    EXIT_NO_MICROPHONE,
    KEY_IN_CLEAR,
    CaOption,
    KeyOption,
    UrlOption,
    access_of,
    exit_code,
    goes_in_clear,
)

EXIT_INTERRUPTED = 130


def command(
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    ca: CaOption = None,
    device: Annotated[str | None, typer.Option(help="Index, or part of the name; else the default.")] = None,
    list_devices: Annotated[bool, typer.Option("--list-devices", help="Print the microphones and end.")] = False,
    sample_rate: Annotated[
        int | None, typer.Option(min=LOWEST_RATE, max=HIGHEST_RATE, help="Else the device's own.")
    ] = None,
) -> None:
    """Stream the microphone; print text as it is spoken, until Ctrl-C.

    Exit codes: 1 no service, 2 options, 3 no microphone, 4 key refused, 5 service busy, 130 interrupted twice.
    """
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    access = access_of(url, key, ca)
    try:
        portaudio = load_portaudio()
        devices = input_devices(portaudio)
        if list_devices:
            console.print(_table(devices))
            return
        if goes_in_clear(url, access):
            errors.print(KEY_IN_CLEAR, style="yellow")
        microphone = recording(portaudio, choose(devices, device), sample_rate)
        with MicView(console, errors) as view:

            def session(source: AudioSource) -> MicSession:
                return MicSession(source=source, view=view, url=url, access=access)

            asyncio.run(run_until_interrupted(microphone, session))
    except (NoMicrophone, ConnectionFailed) as error:
        errors.print(str(error), style="red", soft_wrap=True, markup=False)
        code = EXIT_NO_MICROPHONE if isinstance(error, NoMicrophone) else exit_code(error)
        raise typer.Exit(code) from error
    except (asyncio.CancelledError, KeyboardInterrupt) as error:
        raise typer.Exit(EXIT_INTERRUPTED) from error


async def run_until_interrupted(
    microphone: AbstractContextManager[AudioSource], make: Callable[[AudioSource], MicSession]
) -> None:
    """One session. The first SIGINT or SIGTERM ends it politely, the second at once (CancelledError).

    Raises:
        NoMicrophone, ConnectionFailed: as ``MicSession.run``.
    """
    with microphone as source:
        session = make(source)
        try:
            with _interrupts(session.stop):
                await session.run()
        finally:
            session.view.summary(lost_s=source.lost_s, overflows=source.overflows)


@contextmanager
def _interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """Within the context the first signal calls ``stop`` on the loop, the second cancels this task."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    waiting = iter((stop, task.cancel))

    def interrupt(number: int, frame: FrameType | None) -> None:
        action = next(waiting, None)
        if action is not None:
            loop.call_soon_threadsafe(action)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _table(devices: Sequence[InputDevice]) -> Table:
    table = Table("index", "name", "system", "channels", "rate", "")
    for device in devices:
        default = "default" if device.is_default else ""
        table.add_row(
            str(device.index), device.name, device.host_api, str(device.channels), str(device.sample_rate), default
        )
    return table
