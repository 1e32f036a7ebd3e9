"""Microphones of this machine, through PortAudio (package ``sounddevice``)."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from clients.connection import LOWEST_RATE
from clients.mic.audio_source import BlockQueue, NoMicrophone
from clients.transcribe.audio_file import Samples

BLOCK_S = 0.04
"""Audio that the device hands over at once."""
WAITING_S = 10.0
"""Audio that may wait to be read."""

PLENTY_RATE = 48_000
"""Samples per second above which speech has nothing more to tell, and every device can record."""

Value = str | int | float


class Flags(Protocol):
    """What PortAudio says of a block."""

    @property
    def input_overflow(self) -> bool:
        """Audio before this block was lost."""


Callback = Callable[[NDArray[np.float32], int, object, Flags], None]


class PortAudio(Protocol):
    """The part of ``sounddevice`` that is used here."""

    PortAudioError: type[Exception]

    @property
    def InputStream(self) -> Callable[..., AbstractContextManager[object]]:
        """Opens a device; the stream runs within its context."""

    def query_devices(self) -> Sequence[Mapping[str, Value]]:
        """All devices, those that only play among them; the position is the index."""

    def query_hostapis(self) -> Sequence[Mapping[str, Value | Sequence[int]]]:
        """The sound systems that devices belong to."""

    @property
    def default(self) -> object:
        """Has ``device``, the pair of default indices; -1: there is none."""

    def check_input_settings(self, *, device: int, channels: int, dtype: str, samplerate: int) -> None:
        """Raises PortAudioError, ValueError if the device cannot record so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDevice:
    """A device that can record."""

    index: int
    name: str
    host_api: str
    channels: int
    sample_rate: int
    """Its own."""
    is_default: bool


def load_portaudio() -> PortAudio:
    """The library.

    Raises:
        NoMicrophone: The package or the library beneath it is not installed.
    """
    try:
        import sounddevice
    except ModuleNotFoundError as error:
        raise NoMicrophone("the package sounddevice is not installed: pip install sounddevice") from error
    except OSError as error:
        raise NoMicrophone(
            "the PortAudio library is not installed: apt install libportaudio2 (Debian, Ubuntu), "
            "dnf install portaudio (Fedora), pacman -S portaudio (Arch)"
        ) from error
    return cast(PortAudio, sounddevice)


def input_devices(portaudio: PortAudio) -> list[InputDevice]:
    """All devices that can record, in the library's order."""
    apis = [str(api["name"]) for api in portaudio.query_hostapis()]
    defaults: Sequence[int] = getattr(portaudio.default, "device", (-1, -1))
    return [
        InputDevice(
            index=index,
            name=str(device["name"]),
            host_api=apis[int(device["hostapi"])],
            channels=int(device["max_input_channels"]),
            sample_rate=round(float(device["default_samplerate"])),
            is_default=index == defaults[0],
        )
        for index, device in enumerate(portaudio.query_devices())
        if int(device["max_input_channels"]) > 0
    ]


def choose(devices: Sequence[InputDevice], wanted: str | None) -> InputDevice:
    """A device by its index or a part of its name, in any case; None: the default, else the first.

    Raises:
        NoMicrophone: There is none, or more than one that may be meant.
    """
    if not devices:
        raise NoMicrophone("no microphone was found: connect one, or allow this program to use it")
    ranked = sorted(devices, key=lambda device: not device.is_default)
    if wanted is None:
        return ranked[0]
    if wanted.isdecimal():
        found = [device for device in devices if device.index == int(wanted)]
    else:
        named = [device for device in ranked if wanted.lower() in device.name.lower()]
        found = [device for device in named if device.name.lower() == wanted.lower()] or named
    if len(found) == 1 or (found and found[0].is_default):
        return found[0]
    known = ", ".join(f"{device.index} {device.name} ({device.host_api})" for device in found or devices)
    raise NoMicrophone(f"{wanted!r} {'may be several' if found else 'is none'} of the microphones: {known}")


class Microphone:
    """A device that is recording: an ``AudioSource``."""

    def __init__(self, device: InputDevice, sample_rate: int, loop: asyncio.AbstractEventLoop) -> None:
        self._device = device
        self._sample_rate = sample_rate
        self._queue = BlockQueue(loop, round(WAITING_S * sample_rate))
        self._overflows = 0
        self._is_stopped = False

    @property
    def name(self) -> str:
        """The device's."""
        return self._device.name

    @property
    def sample_rate(self) -> int:
        """Samples per second."""
        return self._sample_rate

    @property
    def lost_s(self) -> float:
        """Seconds that were not read in time."""
        return self._queue.lost_samples / self._sample_rate

    @property
    def overflows(self) -> int:
        """How often the device lost audio."""
        return self._overflows

    async def read(self) -> Samples | None:
        """As ``AudioSource.read``."""
        block = await self._queue.get()
        if block is None and not self._is_stopped:
            raise NoMicrophone(f"{self.name} has stopped recording: is it still connected?")
        return block

    def stop(self) -> None:
        """Take no more from the device."""
        self._is_stopped = True
        self._queue.close()

    def take(self, block: NDArray[np.float32], n_frames: int, times: object, flags: Flags) -> None:
        """What PortAudio calls in a thread of its own. ``block``: float32 [N, channels], the library's memory."""
        self._overflows += bool(flags.input_overflow)
        self._queue.put(np.clip(np.nan_to_num(block).mean(axis=1), -1.0, 1.0))

    def finished(self) -> None:
        """What PortAudio calls when the device will give no more."""
        self._queue.close()


@contextmanager
def recording(portaudio: PortAudio, device: InputDevice, sample_rate: int | None) -> Iterator[Microphone]:
    """The device, recording within the context. Needs a running event loop.

    Args:
        portaudio: The library.
        device: One of its devices.
        sample_rate: Samples per second; None: the device's own, within what the service takes
            and speech needs.

    Raises:
        NoMicrophone: It cannot record, or not at that rate.
    """
    rate = sample_rate or min(max(device.sample_rate, LOWEST_RATE), PLENTY_RATE)
    microphone = Microphone(device, rate, asyncio.get_running_loop())
    try:
        stream = portaudio.InputStream(
            device=device.index,
            channels=_channels(portaudio, device, rate),
            samplerate=rate,
            blocksize=round(BLOCK_S * rate),
            dtype="float32",
            callback=microphone.take,
            finished_callback=microphone.finished,
        )
        stream.__enter__()
    except (portaudio.PortAudioError, ValueError) as error:
        raise NoMicrophone(f"{device.name} cannot record at {rate} samples a second: {_reason(error)}") from error
    try:
        yield microphone
    finally:
        microphone.stop()
        stream.__exit__(None, None, None)


def _channels(portaudio: PortAudio, device: InputDevice, rate: int) -> int:
    """One, which the system mixes, or where it does not, two, which ``take`` mixes."""
    try:
        portaudio.check_input_settings(device=device.index, channels=1, dtype="float32", samplerate=rate)
    except (portaudio.PortAudioError, ValueError):
        return min(2, device.channels)
    return 1


def _reason(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
