"""Coded audio to samples with FFmpeg's libraries; runs in a codec process only.

What is decoded is fixed by the order: nothing here guesses a format, opens a file or an address. One thread a stream,
none of FFmpeg's own: those would hold audio back.
"""

from collections.abc import Iterator
from typing import Final, cast

import av
import numpy as np

from server.codec.flac_framing import FlacFrame, FlacFraming, StreamInfo
from server.codec.messages import StreamOrder
from server.codec.mp3_length import Trim, declared_samples
from server.codec.mp4_boxes import BoxOrder
from server.codec.ogg_pages import OggPages
from server.codec.source import Closed, Source
from server.errors import BadAudio
from server.plan import Samples

DEMUXERS: Final = {"ogg": "ogg", "webm": "matroska", "mp4": "mov", "mp3": "mp3", "aac": "aac"}
NAMES: Final = {
    "ogg": "Ogg",
    "webm": "WebM/Matroska",
    "mp4": "MP4",
    "mp3": "MP3",
    "aac": "AAC",
    "flac": "FLAC",
    "opus": "Opus",
}
"""As codings are called in messages."""
DECODERS: Final = ("opus", "vorbis", "flac", "mp3", "mp3float", "aac", "pcm_s16le", "pcm_s24le", "pcm_f32le")
"""All that may be found inside a container; FFmpeg opens no other."""
OPTIONS: Final = {
    "codec_whitelist": ",".join(DECODERS),
    "protocol_whitelist": "none",
    # the least that FFmpeg reads ahead to learn what it has: packets come out as soon as they are whole
    "probesize": "32",
    "analyzeduration": "0",
}
OPUS_RATE: Final = 48_000
OPUS_CHANNELS: Final = 2
"""Packets outside a container hold no more."""

Decoded = tuple[int, Samples]
"""Samples per second, float32 [C, N]."""


def decode(order: StreamOrder, source: Source) -> Iterator[Decoded]:
    """What the bytes of ``source`` hold, as soon as it can be had. Blocks where the source does.

    Raises:
        BadAudio: They are not what the order says, or are damaged. What is merely incomplete at the end is dropped.
        Closed: The source was closed.
    """
    match order.coding:
        case "opus":
            frames = _opus_frames(source, order.channels)
        case "flac":
            frames = _flac_frames(source)
        case _:
            frames = _container_frames(order.coding, source)
    done_s = 0.0
    trim: Trim | None = None
    try:
        for frame in frames:
            source.note_samples()
            trim = trim or Trim(declared_samples(source.head) if order.coding == "mp3" else None)
            for samples in trim.push(_samples(frame)):
                yield frame.sample_rate, samples
            done_s += frame.samples / frame.sample_rate
    except av.FFmpegError as error:
        is_cut_off = source.has_ended and (done_s or isinstance(error, av.EOFError))
        if not is_cut_off:
            raise _damaged(order.coding, error, done_s) from error


def _damaged(coding: str, error: av.FFmpegError, done_s: float) -> BadAudio:
    reason = (error.strerror or "unknown reason").lower()
    where = f"is damaged after {done_s:.1f} s" if done_s else "cannot be read"
    return BadAudio(f"the {NAMES[coding]} audio {where}: {reason}")


def _opus_frames(source: Source, channels: int) -> Iterator[av.AudioFrame]:
    """One packet a message. Their two channels may be asked for as one."""
    if channels > OPUS_CHANNELS:
        raise BadAudio(f"channels={channels} is declared, but Opus packets hold 1 or {OPUS_CHANNELS}")
    context = _context("opus", _opus_head(channels))
    while packet := source.read():
        yield from context.decode(av.Packet(packet))


def _opus_head(channels: int) -> bytes:
    """RFC 7845, 5.1, with nothing to skip: packets alone do not say where their audio starts."""
    return b"OpusHead\x01" + bytes([channels]) + bytes(2) + OPUS_RATE.to_bytes(4, "little") + bytes(3)


def _flac_frames(source: Source) -> Iterator[av.AudioFrame]:
    framing, decoder = FlacFraming(), _FlacDecoder()
    while data := source.read():
        source.note_samples()  # the framing has bounds of its own, wider ones for metadata
        for frame in framing.push(data):
            yield from _checked(decoder.decode(frame))
        candidate = framing.candidate()
        if candidate is not None:
            try:
                decoded = decoder.decode(candidate)
            except av.FFmpegError:
                continue  # its end is still to come
            framing.accept_candidate()
            yield from _checked(decoded)


class _FlacDecoder:
    """Frames of any number of files."""

    def __init__(self) -> None:
        self._info: StreamInfo | None = None
        self._context: av.AudioCodecContext | None = None

    def decode(self, frame: FlacFrame) -> list[av.AudioFrame]:
        if self._context is None or frame.info is not self._info:
            self._info, self._context = frame.info, _context("flac", frame.info.raw)
        return self._context.decode(av.Packet(frame.data))


def _checked(frames: list[av.AudioFrame]) -> list[av.AudioFrame]:
    if not frames:
        raise BadAudio("the FLAC audio is damaged: a frame without samples")
    return frames


def _context(name: str, extradata: bytes) -> av.AudioCodecContext:
    context = cast(av.AudioCodecContext, av.CodecContext.create(name, "r"))
    context.extradata = extradata
    _use_one_thread(context)
    return context


def _use_one_thread(context: av.AudioCodecContext) -> None:
    context.thread_count = 1
    context.thread_type = "NONE"


def _container_frames(coding: str, source: Source) -> Iterator[av.AudioFrame]:
    watches: dict[str, type[BoxOrder | OggPages]] = {"mp4": BoxOrder, "ogg": OggPages}
    file = _File(source, watches[coding]() if coding in watches else None)
    try:
        yield from _demuxed(coding, file, source)
    finally:
        file.raise_fault()


class _File:
    """What FFmpeg reads from. Its callbacks cannot raise: a fault looks like the end, and is raised afterwards."""

    def __init__(self, source: Source, watch: BoxOrder | OggPages | None) -> None:
        self._source = source
        self._watch = watch
        self._fault: BadAudio | Closed | None = None

    def read(self, n_bytes: int) -> bytes:
        """From 1 to ``n_bytes`` bytes; none at the end."""
        if self._fault is not None:
            return b""
        try:
            data = self._source.read(n_bytes)
            if self._watch is not None:
                self._watch.check(data)
        except (BadAudio, Closed) as fault:
            self._fault = fault
            return b""
        return data

    def raise_fault(self) -> None:
        """Raises: BadAudio, Closed: what ended the reading."""
        if self._fault is not None:
            raise self._fault


def _demuxed(coding: str, file: _File, source: Source) -> Iterator[av.AudioFrame]:
    name = NAMES[coding]
    with av.open(file, "r", format=DEMUXERS[coding], options=OPTIONS, metadata_errors="replace") as container:
        streams = container.streams.audio
        if not streams:
            raise BadAudio(f"the {name} data holds no audio")
        stream = streams[0]
        codec = cast(av.AudioCodecContext | None, stream.codec_context)  # whatever its annotation says
        if codec is None or codec.name not in DECODERS:
            found = codec.name if codec is not None else "unknown"
            raise BadAudio(f"the {name} data holds {found} audio; allowed: {', '.join(DECODERS)}")
        _use_one_thread(codec)
        for packet in container.demux(stream):
            if packet.is_corrupt and source.has_ended:
                continue  # cut off by the end of the audio
            file.raise_fault()
            yield from packet.decode()


def _samples(frame: av.AudioFrame) -> Samples:
    """float32 [C, N], integers exactly value / 2^(bits - 1).

    Raises:
        BadAudio: A sample is no number.
    """
    channels = frame.layout.nb_channels
    values = frame.to_ndarray()
    if not frame.format.is_planar:
        values = values.reshape(-1, channels).T
    if values.dtype.kind == "i":
        scale = np.float32(1 / (1 << (8 * values.dtype.itemsize - 1)))
        return values.astype(np.float32) * scale
    samples = values.astype(np.float32)
    if not np.isfinite(samples).all():
        raise BadAudio("the audio is damaged: it decodes to samples that are no finite numbers")
    return samples
