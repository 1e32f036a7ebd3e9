"""The bytes of a stream between the two threads of a codec process that handle them."""

import threading

import pytest

from server.codec.source import MAX_BARREN_BYTES, Closed, Source
from server.errors import BadAudio


class Reader:
    """A thread that reads, as a decoder does; what it read and how it ended."""

    def __init__(self, n_bytes: int = -1) -> None:
        self.parts: list[bytes] = []
        self.fault: Exception | None = None
        self._hungry = threading.Semaphore(0)
        self.source = Source(self._hungry.release)
        self._n_bytes = n_bytes
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            while part := self.source.read(self._n_bytes):
                self.parts.append(part)
        except (Closed, BadAudio) as fault:
            self.fault = fault

    def until_hungry(self) -> None:
        assert self._hungry.acquire(timeout=10)

    def times_hungry(self) -> int:
        count = 0
        while self._hungry.acquire(blocking=False):
            count += 1
        return count

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


def test_hunger_is_told_once_for_what_was_put() -> None:
    reader = Reader(2)
    for data in (b"abc", b"d"):
        reader.source.put(data)
        reader.until_hungry()
    assert reader.parts == [b"ab", b"c", b"d"]
    reader.source.end()
    reader.join()
    assert reader.times_hungry() == 0
    assert reader.source.has_ended
    assert reader.source.head == b"abcd"


def test_messages_stay_whole_if_asked_for() -> None:
    reader = Reader()
    for data in (b"abc", b"", b"d" * 3000):
        if data:
            reader.source.put(data)
            reader.until_hungry()
    reader.source.end()
    reader.join()
    assert reader.parts == [b"abc", b"d" * 3000]
    assert len(reader.source.head) == 512


def test_what_was_put_is_read_before_the_end() -> None:
    reader = Reader(1)
    reader.source.put(b"xyz")
    reader.source.end()
    reader.join()
    assert b"".join(reader.parts) == b"xyz"


def test_closing_ends_a_reader_that_waits() -> None:
    reader = Reader()
    reader.source.put(b"x")
    reader.until_hungry()
    reader.source.close()
    reader.join()
    assert isinstance(reader.fault, Closed)


def test_bytes_without_a_sample_are_bounded() -> None:
    reader = Reader()
    for _ in range(MAX_BARREN_BYTES // 65_536):
        reader.source.put(bytes(65_536))
        reader.until_hungry()
    reader.source.put(b"x")
    reader.join()
    assert isinstance(reader.fault, BadAudio)
    assert "1 MiB of headers, pictures or damage" in str(reader.fault)


def test_every_sample_starts_the_count_anew() -> None:
    reader = Reader()
    for _ in range(3 * MAX_BARREN_BYTES // 65_536):
        reader.source.put(bytes(65_536))
        reader.until_hungry()
        reader.source.note_samples()
    reader.source.end()
    reader.join()
    assert reader.fault is None


@pytest.mark.parametrize("n_bytes", [-1, 1, 100])
def test_the_end_is_the_end(n_bytes: int) -> None:
    source = Source(lambda: None)
    source.end()
    assert source.read(n_bytes) == b""
    assert source.read(n_bytes) == b""
