"""The same audio says the same, whatever way it comes: in process or over a websocket, in any framing and company."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from clients.connection import ListenOptions, open_connection
from clients.messages import Results
from clients.transcribe.audio_file import AudioFile, to_linear16
from clients.transcribe.command import embedded_engine, sized
from clients.transcribe.transcript import FileRecord
from clients.transcribe.transcription import Transcription
from server.configuration.config import MoorageConfig
from tests.support.fixtures import fixtures, shared_rows

FILES = [f.path for f in fixtures("utterance")]
REAL = [row.path for row in shared_rows("clean")[:2]] + [row.path for row in shared_rows("accented")[:1]]
"""Recordings of the shared collection, where it is."""

Text = list[tuple[str, str]]
"""Final and live text of each utterance that said something."""


def framed(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    """The bytes in messages of these sizes."""
    at = 0
    while at < len(data):
        size = next(sizes)
        yield data[at : at + size]
        at += size


def steady(size: int) -> Iterator[int]:
    """The same size again and again."""
    while True:
        yield size


def ragged(seed: int) -> Iterator[int]:
    """Odd and even sizes, single bytes among them."""
    rng = random.Random(seed)
    while True:
        yield rng.choice((1, 3, 333, 1601, 4096, 9999))


def linear16(path: Path) -> tuple[bytes, int]:
    """A file as the wire wants it, and its sample rate."""
    with AudioFile(path) as file:
        return to_linear16(np.concatenate(list(file.blocks(1.0)))), file.rate


async def stream(url: str, path: Path, sizes: Iterator[int]) -> Text:
    """What the service says of a file that is sent as fast as it takes it."""
    data, rate = linear16(path)
    said: Text = []
    async with open_connection(url, ListenOptions(sample_rate=rate)) as connection:

        async def send() -> None:
            for message in framed(data, sizes):
                await connection.send_audio(message)
            await connection.close_stream()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            async for message in connection.messages():
                if isinstance(message, Results) and message.is_final and (message.transcript or message.live_text):
                    said.append((message.transcript, message.live_text))
    return said


async def streams(url: str, files: Sequence[Path], sizes: Sequence[Iterator[int]]) -> list[Text]:
    """All files at the same time."""
    return list(await asyncio.gather(*(stream(url, path, size) for path, size in zip(files, sizes, strict=True))))


async def in_process(files: Sequence[Path]) -> list[Text]:
    """What ``moorage transcribe`` says of the files."""
    config = sized(MoorageConfig(), len(files))
    records: dict[int, FileRecord] = {}
    async with embedded_engine(config) as engine:
        work = Transcription(
            engine=engine, at_once=len(files), on_progress=lambda seconds: None, on_record=records.__setitem__
        )
        await work.run(files)
    found = (records[index]["segments"] for index in range(len(files)))
    return [[(s["text"], s["live_text"]) for s in segments if s["text"] or s["live_text"]] for segments in found]


@pytest.fixture(scope="module")
def expected() -> dict[Path, Text]:
    """The text of every file, from the engine in this process."""
    files = [*FILES, *REAL]
    return dict(zip(files, asyncio.run(in_process(files)), strict=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(lambda _: steady(7 * 32), id="7 ms chunks"),
        pytest.param(lambda _: steady(3 * 32_000), id="3 s bursts"),
        pytest.param(ragged, id="odd bytes"),
    ],
)
async def test_any_framing_beside_others(service_url: str, expected: dict[Path, Text], sizes: "object") -> None:
    assert callable(sizes)
    files = [*FILES, *REAL][:8]
    said = await streams(service_url, files, [sizes(seed) for seed in range(len(files))])
    assert dict(zip(files, said, strict=True)) == {path: expected[path] for path in files}


@pytest.mark.timeout(600)
async def test_alone(service_url: str, expected: dict[Path, Text]) -> None:
    assert await stream(service_url, FILES[0], steady(1600)) == expected[FILES[0]]
