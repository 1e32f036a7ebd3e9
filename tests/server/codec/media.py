"""Audio files of every kind that is taken, made here and now, and the plain ways to read them."""

import io
from dataclasses import dataclass

import av
import numpy as np
import soundfile

from server.plan import Samples

OPUS_FRAME_SAMPLES = 960


def speechlike(rate: int, seconds: float, channels: int = 1, seed: int = 0) -> Samples:
    """float32 [C, N]: a gliding vowel in noise, each channel its own, so that no gap, swap or repeat can hide."""
    time_s = np.arange(round(rate * seconds)) / rate
    random = np.random.default_rng(seed)
    rows = []
    for channel in range(channels):
        pitch = 2 * np.pi * (110 + 40 * channel) * time_s * (1 + 0.1 * time_s)
        voice = sum(np.sin(k * pitch + channel) / k for k in range(1, 12))
        rows.append(0.2 * voice + 0.01 * random.standard_normal(len(time_s)))
    return np.clip(np.stack(rows), -0.99, 0.99).astype(np.float32)


def sound_file(samples: Samples, rate: int, container: str, subtype: str) -> bytes:
    """float32 [C, N] as libsndfile writes it."""
    file = io.BytesIO()
    soundfile.write(file, samples.T, rate, format=container, subtype=subtype)
    return file.getvalue()


def read_sound_file(data: bytes) -> tuple[Samples, int]:
    """float32 [C, N] and rate, as libsndfile reads it."""
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    return samples.T, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Muxing:
    """How PyAV is to write a file."""

    container: str
    codec: str
    options: dict[str, str]


WEBM = Muxing(container="webm", codec="libopus", options={"live": "1", "cluster_time_limit": "100"})
"""As a browser's MediaRecorder writes."""
MP4 = Muxing(container="mp4", codec="aac", options={"movflags": "frag_every_frame+empty_moov+default_base_moof"})
LATE_INDEX_MP4 = Muxing(container="mp4", codec="aac", options={})
ADTS = Muxing(container="adts", codec="aac", options={})
MP3 = Muxing(container="mp3", codec="mp3", options={"write_xing": "0", "id3v2_version": "0"})
LIVE_OGG = Muxing(container="ogg", codec="libopus", options={"page_duration": "20000"})
MATROSKA_PCM = Muxing(container="matroska", codec="pcm_s16le", options={"cluster_time_limit": "100"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file and how it grew."""

    data: bytes
    growth: list[tuple[float, int]]
    """Seconds of audio that were given to the encoder, bytes of the file by then."""


def muxed(samples: Samples, rate: int, muxing: Muxing) -> Written:
    """float32 [C, N] as FFmpeg writes it."""
    file = io.BytesIO()
    growth = []
    layout = "mono" if len(samples) == 1 else "stereo"
    with av.open(file, "w", format=muxing.container, options={**muxing.options, "flush_packets": "1"}) as container:
        stream = container.add_stream(muxing.codec, rate=rate, layout=layout)
        assert isinstance(stream, av.AudioStream)
        stream.codec_context.open()
        convert = av.AudioResampler(format=stream.codec_context.format.name, layout=layout, rate=rate)
        for start in range(0, samples.shape[1], OPUS_FRAME_SAMPLES):
            piece = np.ascontiguousarray(samples[:, start : start + OPUS_FRAME_SAMPLES])
            frame = av.AudioFrame.from_ndarray(piece, format="fltp", layout=layout)
            frame.sample_rate, frame.pts = rate, start
            for converted in convert.resample(frame):
                container.mux(stream.encode(converted))
            growth.append(((start + piece.shape[1]) / rate, len(file.getvalue())))
        container.mux(stream.encode(None))
    return Written(data=file.getvalue(), growth=growth)


def read_file(data: bytes) -> tuple[Samples, int]:
    """float32 [C, N] and rate, as FFmpeg reads the whole file at once."""
    parts, rate = [], 0
    with av.open(io.BytesIO(data), "r") as container:
        for frame in container.decode(audio=0):
            values = frame.to_ndarray()
            if not frame.format.is_planar:
                values = values.reshape(-1, frame.layout.nb_channels).T
            if values.dtype.kind == "i":
                values = values.astype(np.float32) / np.float32(1 << (8 * values.dtype.itemsize - 1))
            parts.append(values)
            rate = frame.sample_rate
    return np.concatenate(parts, axis=1).astype(np.float32), rate


def opus_packets(samples: Samples) -> list[bytes]:
    """float32 [C, N] at 48 kHz, as packets of 20 ms."""
    context = av.CodecContext.create("libopus", "w")
    assert isinstance(context, av.AudioCodecContext)
    layout = "mono" if len(samples) == 1 else "stereo"
    context.sample_rate, context.format, context.layout = 48_000, av.AudioFormat("flt"), layout
    packets = []
    for start in range(0, samples.shape[1], OPUS_FRAME_SAMPLES):
        piece = np.ascontiguousarray(samples[:, start : start + OPUS_FRAME_SAMPLES].T.reshape(1, -1))
        frame = av.AudioFrame.from_ndarray(piece, format="flt", layout=layout)
        frame.sample_rate, frame.pts = 48_000, start
        packets += context.encode(frame)
    return [bytes(packet) for packet in [*packets, *context.encode(None)]]
