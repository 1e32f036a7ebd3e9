"""Microphones: which one is meant, how it is opened, and what comes of what PortAudio calls."""

import sys
from collections.abc import Sequence

import numpy as np
import pytest

from clients.mic.audio_source import NoMicrophone
from clients.mic.microphone import InputDevice, Microphone, choose, input_devices, load_portaudio, recording
from tests.support.fake_portaudio import FakePortAudio, FakeStream, PortAudioError, device

DEVICES = (
    device("HDA Intel: ALC257", channels=2, rate=48_000.0),
    device("HDMI 0", channels=0),
    device("Yeti USB", rate=96_000.0),
    device("Yeti USB", rate=44_100.0, api=1),
    device("old phone", rate=2_000.0),
)


def found(default_index: int = 2) -> list[InputDevice]:
    return input_devices(FakePortAudio(devices=DEVICES, default_index=default_index))


def test_devices_that_cannot_record_are_no_microphones() -> None:
    assert [(each.index, each.host_api, each.sample_rate, each.is_default) for each in found()] == [
        (0, "ALSA", 48_000, False),
        (2, "ALSA", 96_000, True),
        (3, "JACK", 44_100, False),
        (4, "ALSA", 2_000, False),
    ]


@pytest.mark.parametrize(
    ("wanted", "default_index", "index"),
    [
        (None, 2, 2),
        (None, -1, 0),
        ("3", 2, 3),
        ("alc", 2, 0),
        ("YETI", 3, 3),
        ("yeti usb", 2, 2),
        ("old phone", -1, 4),
    ],
)
def test_a_device_is_named_by_index_or_part_of_its_name(wanted: str | None, default_index: int, index: int) -> None:
    assert choose(found(default_index), wanted).index == index


@pytest.mark.parametrize(
    ("devices", "wanted", "message"),
    [
        ([], None, "no microphone was found: connect one"),
        (found(), "1", "'1' is none of the microphones: 0 HDA Intel: ALC257"),
        (found(), "nothing", "'nothing' is none of the microphones"),
        (found(-1), "yeti", r"'yeti' may be several of the microphones: 2 Yeti USB \(ALSA\), 3 Yeti USB \(JACK\)$"),
    ],
)
def test_none_or_several_is_told_with_what_there_is(
    devices: Sequence[InputDevice], wanted: str | None, message: str
) -> None:
    with pytest.raises(NoMicrophone, match=message):
        choose(devices, wanted)


async def test_what_portaudio_hands_over_is_mixed_copied_and_counted() -> None:
    portaudio = FakePortAudio(devices=DEVICES, mono=False)
    with recording(portaudio, found()[0], None) as microphone:
        (stream,) = portaudio.streams
        assert stream.is_running
        assert stream.options == {
            "device": 0,
            "channels": 2,
            "samplerate": 48_000,
            "blocksize": 1_920,
            "dtype": "float32",
        }
        stream.record(np.array([[0.5, 0.25], [3.0, np.nan]], np.float32))
        stream.record(np.zeros((3, 2), np.float32), overflow=True)
        first, second = await microphone.read(), await microphone.read()
        assert first is not None
        assert first.dtype == np.float32
        assert first.tolist() == [0.375, 1.0]
        assert second is not None
        assert second.tolist() == [0.0, 0.0, 0.0]
        assert (microphone.overflows, microphone.lost_s) == (1, 0.0)
        stream.record(np.full((1, 2), 0.5, np.float32))
        microphone.stop()
        stream.record(np.ones((1, 2), np.float32))
        last = await microphone.read()
        assert last is not None
        assert last.tolist() == [0.5]
        assert await microphone.read() is None
    assert not stream.is_running


@pytest.mark.parametrize(("index", "wanted", "rate"), [(0, 16_000, 16_000), (1, None, 48_000), (3, None, 4_000)])
async def test_the_rate_is_the_devices_own_within_what_the_service_takes(
    index: int, wanted: int | None, rate: int
) -> None:
    portaudio = FakePortAudio(devices=DEVICES)
    with recording(portaudio, found()[index], wanted) as microphone:
        assert microphone.sample_rate == portaudio.streams[0].options["samplerate"] == rate
        assert portaudio.streams[0].options["channels"] == 1


async def test_a_reader_that_is_too_slow_loses_the_oldest() -> None:
    portaudio = FakePortAudio(devices=DEVICES)
    with recording(portaudio, found()[0], 8_000) as microphone:
        for _ in range(11):
            portaudio.streams[0].record(np.zeros((8_000, 1), np.float32))
        assert microphone.lost_s == 1.0


async def test_a_microphone_that_is_unplugged_is_told() -> None:
    portaudio = FakePortAudio(devices=DEVICES)
    with recording(portaudio, found()[0], None) as microphone:
        portaudio.streams[0].finished_callback()
        with pytest.raises(NoMicrophone, match="HDA Intel: ALC257 has stopped recording"):
            await microphone.read()


@pytest.mark.parametrize("fault", [PortAudioError("Device unavailable", -9985), ValueError("no such device")])
async def test_a_device_that_cannot_be_opened_is_told(fault: Exception) -> None:
    portaudio = FakePortAudio(devices=DEVICES, fault=fault)
    opening = recording(portaudio, found()[1], 16_000)
    with pytest.raises(NoMicrophone, match=f"Yeti USB cannot record at 16000 samples a second: {fault.args[0]}$"):
        opening.__enter__()


async def test_a_device_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FakeStream) -> Microphone:
        raise PortAudioError("Unanticipated host error")

    monkeypatch.setattr(FakeStream, "__enter__", fail)
    opening = recording(FakePortAudio(devices=DEVICES), found()[1], None)
    with pytest.raises(NoMicrophone, match="Unanticipated host error"):
        opening.__enter__()


def test_without_the_package_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(NoMicrophone, match="pip install sounddevice"):
        load_portaudio()


class WithoutLibrary:
    """Finds ``sounddevice`` and fails as it does where PortAudio is not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "sounddevice":
            raise OSError("PortAudio library not found")


def test_without_the_library_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "meta_path", [WithoutLibrary(), *sys.meta_path])
    with pytest.raises(NoMicrophone, match="PortAudio library is not installed: apt install libportaudio2"):
        load_portaudio()
