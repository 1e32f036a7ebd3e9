"""PortAudio without a device: the part of ``sounddevice`` that the microphone uses, with a callback that tests call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from clients.mic.microphone import Callback, Value


class PortAudioError(Exception):
    """As the library raises it."""


def device(name: str, *, channels: int = 1, rate: float = 44_100.0, api: int = 0) -> dict[str, Value]:
    """What the library says of a device."""
    return {"name": name, "hostapi": api, "max_input_channels": channels, "default_samplerate": rate}


@dataclass(kw_only=True)
class FakeStream:
    """An open stream."""

    options: Mapping[str, object]
    callback: Callback
    finished_callback: Callable[[], None]
    is_running: bool = False

    def __enter__(self) -> Self:
        self.is_running = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_running = False
        self.finished_callback()

    def record(self, block: NDArray[np.float32], *, overflow: bool = False) -> None:
        """A block [N, channels], in the library's memory, which it then uses again."""
        own = block.copy()
        self.callback(own, len(own), None, SimpleNamespace(input_overflow=overflow))
        own[:] = np.nan


@dataclass(kw_only=True)
class FakePortAudio:
    """The library."""

    devices: Sequence[Mapping[str, Value]]
    default_index: int = -1
    mono: bool = True
    """Whether devices record one channel."""
    fault: Exception | None = None
    streams: list[FakeStream] = field(default_factory=list)
    PortAudioError: type[Exception] = PortAudioError

    @property
    def default(self) -> object:
        return SimpleNamespace(device=(self.default_index, -1))

    def query_devices(self) -> Sequence[Mapping[str, Value]]:
        return self.devices

    def query_hostapis(self) -> Sequence[Mapping[str, Value | Sequence[int]]]:
        return [{"name": "ALSA"}, {"name": "JACK"}]

    def check_input_settings(self, *, device: int, channels: int, dtype: str, samplerate: int) -> None:
        if channels == 1 and not self.mono:
            raise PortAudioError("Invalid number of channels")

    def InputStream(self, **options: object) -> FakeStream:
        if self.fault is not None:
            raise self.fault
        callback, finished = options.pop("callback"), options.pop("finished_callback")
        stream = FakeStream(options=options, callback=callback, finished_callback=finished)  # type: ignore[arg-type]
        self.streams.append(stream)
        return stream
