"""WAV headers of every kind, where the samples end, and what is refused. Values are compared in test_exact.py."""

import struct

import pytest

from server.codec.wav import WavFormat, WavReader
from server.errors import BadAudio
from tests.server.codec.feeding import pieces

SAMPLES = bytes(range(1, 201))


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


def format_chunk(tag: int = 1, channels: int = 1, rate: int = 16_000, bits: int = 16, more: bytes = b"") -> bytes:
    frame_bytes = channels * bits // 8
    return chunk(b"fmt ", struct.pack("<HHIIHH", tag, channels, rate, rate * frame_bytes, frame_bytes, bits) + more)


def wav(*chunks: bytes, riff: bytes = b"RIFF") -> bytes:
    return riff + struct.pack("<I", 0xFFFFFFFF) + b"WAVE" + b"".join(chunks)


def data_header(size: int) -> bytes:
    return b"data" + struct.pack("<I", size)


def read(data: bytes, sizes: list[int]) -> tuple[bytes, WavFormat | None]:
    reader = WavReader()
    return b"".join(reader.push(part) for part in pieces(data, sizes)), reader.format


CUTS = ([1], [2, 3], [13], [100_000])


class TestSamples:
    @pytest.mark.parametrize("sizes", CUTS)
    def test_a_plain_file(self, sizes: list[int]) -> None:
        samples, found = read(wav(format_chunk(), chunk(b"data", SAMPLES)), sizes)
        assert samples == SAMPLES
        assert found == WavFormat(encoding="linear16", rate=16_000, channels=1)

    @pytest.mark.parametrize("sizes", CUTS)
    def test_chunks_before_and_after_are_skipped(self, sizes: list[int]) -> None:
        before = chunk(b"LIST", b"INFOodd"), chunk(b"bext", bytes(602))
        after = chunk(b"LIST", b"data" + bytes(50)), chunk(b"id3 ", bytes(7))
        data = wav(before[0], format_chunk(), before[1], chunk(b"data", SAMPLES[:-1]), *after)
        assert read(data, sizes)[0] == SAMPLES[:-1]

    @pytest.mark.parametrize("size", [0, 0x7FFFFFFF, 0xFFFFFFFF])
    def test_a_size_that_the_writer_could_not_know(self, size: int) -> None:
        assert read(wav(format_chunk(), data_header(size)) + SAMPLES * 3, [17])[0] == SAMPLES * 3

    def test_a_size_larger_than_what_comes(self) -> None:
        assert read(wav(format_chunk(), data_header(10_000)) + SAMPLES, [17])[0] == SAMPLES

    def test_rf64_has_its_size_elsewhere(self) -> None:
        sizes = chunk(b"ds64", struct.pack("<QQQI", 0, len(SAMPLES), 0, 0))
        data = wav(sizes, format_chunk(), data_header(0xFFFFFFFF) + SAMPLES, chunk(b"LIST", bytes(20)), riff=b"RF64")
        assert read(data, [17])[0] == SAMPLES


class TestFormats:
    @pytest.mark.parametrize(
        ("tag", "bits", "encoding"),
        [
            (1, 8, "unsigned8"),
            (1, 16, "linear16"),
            (1, 24, "linear24"),
            (1, 32, "integer32"),
            (3, 32, "linear32"),
            (3, 64, "float64"),
            (6, 8, "alaw"),
            (7, 8, "mulaw"),
        ],
    )
    @pytest.mark.parametrize("is_extensible", [False, True])
    def test_all_that_are_taken(self, tag: int, bits: int, encoding: str, is_extensible: bool) -> None:
        more = struct.pack("<HHIH", 22, bits, 0, tag) + b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
        chunk_ = format_chunk(0xFFFE, 2, 44_100, bits, more) if is_extensible else format_chunk(tag, 2, 44_100, bits)
        _, found = read(wav(chunk_, data_header(8)), [17])
        assert found == WavFormat(encoding=encoding, rate=44_100, channels=2)

    @pytest.mark.parametrize(
        ("tag", "bits", "channels"),
        [(2, 4, 1), (0x55, 0, 1), (1, 64, 1), (3, 16, 1), (6, 16, 1), (1, 16, 0), (0xFFFE, 16, 1)],
    )
    def test_others_are_named(self, tag: int, bits: int, channels: int) -> None:
        with pytest.raises(BadAudio, match=rf"format {tag:#x}, {bits} bits.*allowed: PCM of 8, 16, 24 or 32 bits"):
            read(wav(format_chunk(tag, channels, 16_000, bits)), [17])


class TestRefusals:
    @pytest.mark.parametrize("sizes", CUTS)
    def test_a_second_file_behind_the_first(self, sizes: list[int]) -> None:
        """A client that makes a file of every message would be heard for one message only."""
        for samples in (SAMPLES, SAMPLES[:-1]):
            message = wav(format_chunk(), chunk(b"data", samples))
            with pytest.raises(BadAudio, match="a second WAV header"):
                read(message * 2, sizes)

    def test_no_wav(self) -> None:
        with pytest.raises(BadAudio, match="no WAV header"):
            read(b"RIFF\x00\x00\x00\x00AVI " + bytes(50), [7])

    def test_samples_without_a_format(self) -> None:
        with pytest.raises(BadAudio, match=r"before the chunk that describes them \(fmt\)"):
            read(wav(chunk(b"data", SAMPLES)), [17])

    def test_a_short_format(self) -> None:
        with pytest.raises(BadAudio, match="a fmt chunk of 10 bytes"):
            read(wav(chunk(b"fmt ", bytes(10))), [17])

    def test_a_header_without_end(self) -> None:
        with pytest.raises(BadAudio, match="no samples within its first 1 MiB"):
            read(wav(b"junk" + struct.pack("<I", 0xFFFFFFF0) + bytes(100)), [17])
        with pytest.raises(BadAudio, match="no samples within its first 1 MiB"):
            read(wav(*[chunk(b"junk", bytes(60_000)) for _ in range(20)]), [5000])
