"""What audio is, by its first bytes."""

import pytest

from server.codec.magic import MAGICS, RawGuard, container_of
from server.errors import BadAudio


def check(guard: RawGuard, parts: list[bytes]) -> None:
    for part in parts:
        guard.check(part)


class TestRawGuard:
    @pytest.mark.parametrize("size", [1, 2, 3, 4, 44])
    @pytest.mark.parametrize("magic", sorted(MAGICS))
    def test_a_container_is_refused_however_it_is_cut(self, magic: bytes, size: int) -> None:
        name, kind = MAGICS[magic]
        data = magic + bytes(40)
        with pytest.raises(BadAudio) as caught:
            check(RawGuard("mulaw"), [data[start : start + size] for start in range(0, len(data), size)])
        assert str(caught.value) == (
            f"the audio starts with a {name} header ({kind}), but encoding=mulaw is declared: send raw samples without "
            "any header, or leave encoding and sample_rate out, so that the container is detected"
        )

    def test_only_at_the_very_start(self) -> None:
        check(RawGuard("linear16"), [b"\x00\x00", b"RI", b"FF", b"RIFF"])

    def test_almost_a_magic(self) -> None:
        check(RawGuard("linear16"), [b"RIF", b"fRI", b"FF"])


class TestContainerOf:
    @pytest.mark.parametrize(
        ("head", "container"),
        [
            (b"RIFF\xff\xff\xff\xffWAVE", "wav"),
            (b"RF64\xff\xff\xff\xffWAVE", "wav"),
            (b"fLaC\x00\x00\x00\x22\x10\x00\x10\x00", "flac"),
            (b"OggS\x00\x02\x00\x00\x00\x00\x00\x00", "ogg"),
            (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81", "webm"),
            (b"\x00\x00\x00\x1cftypiso5", "mp4"),
            (b"\xff\xfb\x90\x64\x00\x00\x00\x00\x00\x00\x00\x00", "mp3"),
            (b"\xff\xf3\x40\xc0\x00\x00\x00\x00\x00\x00\x00\x00", "mp3"),
            (b"\xff\xf1\x50\x80\x00\x1f\xfc\x00\x00\x00\x00\x00", "aac"),
            (b"\xff\xf9\x50\x80\x00\x1f\xfc\x00\x00\x00\x00\x00", "aac"),
        ],
    )
    def test_known(self, head: bytes, container: str) -> None:
        assert container_of(head) == container

    @pytest.mark.parametrize(
        "head",
        [
            b"",
            b"\xff",
            bytes(12),
            b"RIFF\x00\x00\x00\x00AVI ",
            b"#EXTM3U\nhttp",
            b"FORM\x00\x00\x00\x00AIFF",
            b"\xff\x00\x00\x00",
            b"[playlist]\nF",
        ],
    )
    def test_unknown_names_the_bytes_and_what_is_taken(self, head: bytes) -> None:
        with pytest.raises(BadAudio) as caught:
            container_of(head)
        assert f"starts with {head[:8].hex(' ') or 'nothing'}, which" in str(caught.value)
        assert "WAV, FLAC, Ogg (Opus, Vorbis, FLAC), WebM/Matroska, MP3, AAC (ADTS), fragmented MP4" in str(
            caught.value
        )
