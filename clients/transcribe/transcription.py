"""Files through an engine in this process: several at once share its batches, each as fast as it is taken."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clients.transcribe.audio_file import MODEL_RATE, AudioFile, Samples
from clients.transcribe.transcript import FileRecord, file_record
from server.codec.resampler import MAX_RATE, MIN_RATE, Resampler
from server.engine.engine import Engine
from server.engine.sequence_handle import SequenceHandle
from server.errors import BadAudio, MoorageError, SequenceAlreadyEnded, ShuttingDown, UnknownSequence
from server.events import Partial, SequenceClosed, SequenceFailed, UtteranceFinal
from server.ids import SequenceId

BLOCK_S = 1.0
"""Audio that is decoded and handed over at once."""


@dataclass(slots=True, kw_only=True)
class Transcription:
    """The work on a list of files."""

    engine: Engine
    at_once: int
    """Files that are open at the same time, at most as many as the engine has slots."""
    on_progress: Callable[[float], None]
    """Called with the seconds of audio that were done since it was called last."""
    on_record: Callable[[int, FileRecord], None]
    """Called with the position of a file in the list and what came of it, when it is done."""
    _next: int = field(default=0, init=False)

    async def run(self, files: Sequence[Path]) -> None:
        """Transcribe all of them; what cannot be read becomes a record with an error and stops no other."""
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.at_once, len(files))):
                group.create_task(self._work(files))

    async def _work(self, files: Sequence[Path]) -> None:
        while self._next < len(files):
            index = self._next
            self._next += 1
            self.on_record(index, await self._transcribe(index, files[index]))

    async def _transcribe(self, index: int, path: Path) -> FileRecord:
        heard = _Heard(self.on_progress)
        try:
            with AudioFile(path) as file:
                handle = self.engine.open(SequenceId(f"{index}:{path.name}"))
                async with asyncio.TaskGroup() as group:
                    feeding = group.create_task(_feed(file, handle))
                    await heard.listen(handle)
        except MoorageError as error:
            return file_record(str(path), 0.0, (), _reason(path, error))
        fault = heard.failure or feeding.result()
        return file_record(str(path), heard.audio_s, heard.finals, _reason(path, fault) if fault else None)


class _Heard:
    """What an engine says of one file."""

    def __init__(self, on_progress: Callable[[float], None]) -> None:
        self.finals: list[UtteranceFinal] = []
        self.audio_s = 0.0
        self.failure: MoorageError | None = None
        self._on_progress = on_progress

    async def listen(self, handle: SequenceHandle) -> None:
        """To the terminal event."""
        async for event in handle.events():
            match event:
                case Partial():
                    self._advance(event.covered_s)
                case UtteranceFinal():
                    self.finals.append(event)
                case SequenceClosed():
                    self._advance(event.audio_s)
                case SequenceFailed():
                    self.failure = event.error

    def _advance(self, audio_s: float) -> None:
        if audio_s > self.audio_s:
            self._on_progress(audio_s - self.audio_s)
            self.audio_s = audio_s


async def _feed(file: AudioFile, handle: SequenceHandle) -> BadAudio | None:
    """All audio of a file, then END. A fault in its middle is returned; what came before it is read all the same.

    Decoding a block takes a few milliseconds: nothing here has to be told in time, so it may hold up the event loop.
    """
    fault: BadAudio | None = None
    try:
        try:
            for block in model_audio(file):
                await handle.send(block)
        except BadAudio as error:
            fault = error
        await handle.end()
    except (SequenceAlreadyEnded, UnknownSequence, ShuttingDown):
        pass  # the terminal event says why
    return fault


def model_audio(file: AudioFile) -> Iterator[Samples]:
    """A file at the models' rate, through the service's own resampler where that takes the file's rate.

    So a file says the same here as over a websocket.

    Raises:
        BadAudio: as ``AudioFile.blocks``.
    """
    if not MIN_RATE <= file.rate <= MAX_RATE:
        yield from file.resampled(MODEL_RATE, BLOCK_S)
        return
    resampler = Resampler(file.rate)
    for block in file.blocks(BLOCK_S):
        yield resampler.process(block)
    yield resampler.finish()


def _reason(path: Path, error: MoorageError) -> str:
    return str(error).removeprefix(f"{path}: ")
