"""One file played over one connection at the pace of a microphone, with what was sent and heard on record."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clients.connection import ANYONE, HIGHEST_RATE, LOWEST_RATE, Access, Connection, ListenOptions, open_connection
from clients.exchange import exchange
from clients.messages import Results
from clients.replay.latency import NS, Heard, SentChunk, Timeline
from clients.transcribe.audio_file import MODEL_RATE, AudioFile, Samples, to_linear16


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How audio is sent."""

    speed: float = 1.0
    """Seconds of audio per second of clock."""
    chunk_ms: int = 40
    """Audio of one message."""
    silence_s: float = 0.0
    """Silence after the file's last sample, as an open microphone would send it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """What came of one file."""

    path: Path
    finals: tuple[Results, ...]
    timeline: Timeline

    @property
    def text(self) -> str:
        """The final text."""
        return " ".join(result.transcript for result in self.finals if result.transcript)

    @property
    def live_text(self) -> str:
        """The live model's own."""
        return self.timeline.live_text()


async def play(
    path: Path, url: str, pace: Pace, on_result: Callable[[Results], None], access: Access = ANYONE
) -> Playback:
    """Stream a file at its own sample rate (within what the service takes), as it would be spoken.

    Args:
        path: The file.
        url: The service.
        pace: How fast and in which pieces.
        on_result: Called with every result as it arrives.
        access: The key to show, the authorities to trust.

    Raises:
        BadAudio: The file cannot be read to its end.
        BadParameter: The key or the file of authorities cannot be used.
        ConnectionFailed: The service refuses, fails, or closes before everything is answered.
    """
    with AudioFile(path) as file:
        rate = file.rate if LOWEST_RATE <= file.rate <= HIGHEST_RATE else MODEL_RATE
        async with open_connection(url, ListenOptions(sample_rate=rate), access) as connection:
            timeline = Timeline(started_at_ns=time.monotonic_ns(), speed=pace.speed)
            finals: list[Results] = []
            await exchange(
                _send(file, rate, connection, timeline, pace), _receive(connection, timeline, finals, on_result)
            )
    return Playback(path=path, finals=tuple(finals), timeline=timeline)


def _chunks(file: AudioFile, rate: int, pace: Pace) -> Iterator[Samples]:
    chunk_s = pace.chunk_ms / 1000
    yield from file.resampled(rate, chunk_s)
    silence = round(pace.silence_s * rate)
    chunk = max(1, round(chunk_s * rate))
    while silence > 0:
        yield np.zeros(min(chunk, silence), np.float32)
        silence -= chunk


async def _send(file: AudioFile, rate: int, connection: Connection, timeline: Timeline, pace: Pace) -> None:
    """Every chunk leaves when its last sample has been spoken, on a schedule counted from the start: no drift."""
    samples = 0
    for chunk in _chunks(file, rate, pace):
        samples += len(chunk)
        due_ns = timeline.spoken_at_ns(samples / rate)
        await asyncio.sleep(max(0, due_ns - time.monotonic_ns()) / NS)
        timeline.sent.append(SentChunk(end_s=samples / rate, sent_at_ns=time.monotonic_ns()))
        await connection.send_audio(to_linear16(chunk))
    await connection.close_stream()


async def _receive(
    connection: Connection, timeline: Timeline, finals: list[Results], on_result: Callable[[Results], None]
) -> None:
    async for message in connection.messages():
        if not isinstance(message, Results):
            continue
        committed, _ = message.split()
        heard = Heard(
            utterance=message.moorage.utterance,
            text=message.live_text if message.is_final else message.transcript,
            committed_text=message.live_text if message.is_final else committed,
            covered_s=message.moorage.covered_s,
            arrived_at_ns=time.monotonic_ns(),
        )
        if message.is_final:
            finals.append(message)
            timeline.finals.append(heard)
        else:
            timeline.interims.append(heard)
        on_result(message)
