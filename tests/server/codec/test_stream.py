"""One stream in a codec process, without the process: what it sends, and that it waits until that is taken."""

import queue

import numpy as np

from server.codec.messages import WINDOW_BLOCKS, Fault, Kind, StreamOrder, unpacked_block
from server.codec.stream import Stream
from tests.server.codec.media import sound_file, speechlike

BOMB = sound_file(np.zeros((1, 16_000 * 60), np.float32), 16_000, "FLAC", "PCM_16")


class Running:
    """A stream and what it sent."""

    def __init__(self, coding: str = "flac", *, mixdown: bool = True, channels: int = 1) -> None:
        self._sent: queue.SimpleQueue[tuple[Kind, bytes]] = queue.SimpleQueue()
        order = StreamOrder(coding=coding, mixdown=mixdown, channels=channels)
        self.stream = Stream(order, lambda kind, payload=b"": self._sent.put((kind, payload)))

    def next(self) -> tuple[Kind, bytes]:
        return self._sent.get(timeout=10)

    def is_quiet(self) -> bool:
        """Whether nothing comes for longer than decoding takes by far."""
        try:
            self._sent.get(timeout=0.3)
        except queue.Empty:
            return True
        return False


def test_a_file_in_one_turn() -> None:
    samples = speechlike(16_000, 0.6)
    running = Running()
    running.stream.data(sound_file(samples, 16_000, "FLAC", "PCM_16"))
    blocks = []
    while (reply := running.next())[0] is Kind.BLOCK:
        blocks.append(unpacked_block(reply[1], 1))
        running.stream.taken()
    assert reply == (Kind.HUNGRY, b"")
    running.stream.end()
    assert running.next() == (Kind.DONE, b"")
    np.testing.assert_allclose(np.concatenate(blocks, axis=1), samples, atol=1 / 32768)


def test_nothing_is_decoded_beyond_the_window() -> None:
    running = Running()
    running.stream.data(BOMB)
    for _ in range(WINDOW_BLOCKS):
        assert running.next()[0] is Kind.BLOCK
    assert running.is_quiet()
    running.stream.taken()
    assert running.next()[0] is Kind.BLOCK
    assert running.is_quiet()
    running.stream.close()


def test_closing_ends_a_stream_that_waits_to_send() -> None:
    running = Running()
    running.stream.data(BOMB)
    for _ in range(WINDOW_BLOCKS):
        running.next()
    running.stream.close()
    running.stream._thread.join(10)
    assert not running.stream._thread.is_alive()
    assert running.is_quiet()


def test_damage_is_told_once_and_is_the_end() -> None:
    running = Running()
    running.stream.data(b"fLaC" + bytes(60))
    kind, payload = running.next()
    assert kind is Kind.FAULT or kind is Kind.HUNGRY
    running = Running()
    running.stream.data(b"nope" + bytes(60))
    kind, payload = running.next()
    assert kind is Kind.FAULT
    fault = Fault.unpacked(payload)
    assert fault.is_bad_audio
    assert "FLAC starts with fLaC" in fault.text
    assert running.is_quiet()


def test_a_mistake_of_ours_is_told_as_such() -> None:
    running = Running("no-such-coding")
    running.stream.data(b"x")
    kind, payload = running.next()
    assert kind is Kind.FAULT
    fault = Fault.unpacked(payload)
    assert not fault.is_bad_audio
    assert "KeyError" in fault.text


def test_channels_to_be_kept_apart_must_be_as_declared() -> None:
    running = Running(mixdown=False, channels=3)
    running.stream.data(sound_file(speechlike(16_000, 0.6, 2), 16_000, "FLAC", "PCM_16"))
    kind, payload = running.next()
    assert kind is Kind.FAULT
    assert "has 2 channels, but multichannel audio with channels=3 is declared" in Fault.unpacked(payload).text


def test_another_rate_in_the_middle_is_refused() -> None:
    running = Running()
    parts = [sound_file(speechlike(rate, 0.2), rate, "FLAC", "PCM_16") for rate in (16_000, 8_000)]
    running.stream.data(b"".join(parts))
    kinds = []
    while (reply := running.next())[0] is Kind.BLOCK:
        running.stream.taken()
        kinds.append(reply[0])
    assert kinds
    assert reply[0] is Kind.FAULT
    assert "changes from 16000 Hz, 1 channels to 8000 Hz, 1 channels" in Fault.unpacked(reply[1]).text
