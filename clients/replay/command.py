"""``moorage replay``: files over websockets at the pace of microphones, with word errors and latency at the end."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from clients.connection import ANYONE, Access, ConnectionFailed, Refused
from clients.replay.latency import Latencies, lines_up, step_latencies, word_latencies
from clients.replay.playback import Pace, Playback, play
from clients.replay.reference import references
from clients.replay.view import ReplayView, print_latencies, print_left_out, print_texts, print_word_errors
from clients.service_options import (
    DEFAULT_URL,
    EXIT_FAULT,
    KEY_IN_CLEAR,
    CaOption,
    KeyOption,
    UrlOption,
    access_of,
    exit_code,
    goes_in_clear,
)
from clients.transcribe.audio_file import MODEL_RATE, read_audio
from clients.word_error_rate import WordErrors, word_errors, words
from server.errors import BadAudio, BadParameter

STAGGER_S = 2.0
"""The streams start within this time, evenly spread, so that their ticks do not fall together."""
PATIENCE_S = 60.0
ALIGNABLE_S = (0.1, 40.0)
"""Lengths of recordings whose words the aligner finds."""


class WordAligner(Protocol):
    """Finds words in audio."""

    def word_ends(self, audio: NDArray[np.float32], words: Sequence[str]) -> list[float]:
        """Second at which each word ends; ``audio``: float32 [N], 16 kHz."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """All files that were played to their end, and why the others were not."""

    played: tuple[Playback, ...]
    failures: Mapping[Path, str]
    refused: Refused | None = None
    """Why the service takes nothing from this client; the files that it did not take are in neither of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures over all files that were played."""

    final: WordErrors
    live: WordErrors
    latencies: Latencies
    left_out: tuple[str, ...]
    """Why word and final delays lack a file, one reason for each time that it was played."""


@dataclass(slots=True, kw_only=True)
class Replay:
    """Streams that play files side by side."""

    url: str
    pace: Pace
    view: ReplayView
    access: Access = ANYONE
    patience_s: float = PATIENCE_S
    """How long a stream goes on asking a service that is busy."""
    played: list[Playback] = field(default_factory=list)
    failures: dict[Path, str] = field(default_factory=dict)
    refused: Refused | None = None

    async def run(self, files: Sequence[Path], streams: int) -> ReplayOutcome:
        """Play the files in ``streams`` streams, each its share one after the other."""
        async with asyncio.TaskGroup() as group:
            for stream, share in enumerate(shares(files, streams)):
                group.create_task(self._stream(stream, share, STAGGER_S * stream / streams))
        return ReplayOutcome(played=tuple(self.played), failures=self.failures, refused=self.refused)

    async def _stream(self, stream: int, files: Sequence[Path], wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        for path in files:
            if self.refused is not None:
                return
            try:
                self.played.append(await self._play(stream, path))
            except Refused as error:
                self.refused = error
            except (BadAudio, ConnectionFailed) as error:
                self.failures[path] = str(error).removeprefix(f"{path}: ")
                self.view.fail(path, self.failures[path])
            self.view.clear(stream)

    async def _play(self, stream: int, path: Path) -> Playback:
        """One file; a service that is busy is asked again, as it says, for a while."""
        asked_s = 0.0
        on_result = partial(self.view.show, stream, path)
        while True:
            try:
                return await play(path, self.url, self.pace, on_result, self.access)
            except Refused as error:
                if error.retry_after_s is None or asked_s >= self.patience_s or self.refused is not None:
                    raise
                if asked_s == 0.0:
                    self.view.wait(path, error.reason)
                asked_s += error.retry_after_s
                await asyncio.sleep(error.retry_after_s)


def shares(files: Sequence[Path], streams: int) -> list[list[Path]]:
    """The files dealt out to the streams; where they are fewer, they repeat so that no stream is without one."""
    hands = max(len(files), streams)
    dealt: list[list[Path]] = [[] for _ in range(streams)]
    for hand in range(hands):
        dealt[hand % streams].append(files[hand % len(files)])
    return dealt


def measure(played: Sequence[Playback], reference_of: Mapping[Path, str], aligner: WordAligner | None) -> Measured:
    """Errors of the final and the live text, and latencies, summed over all files."""
    final, live, latencies = WordErrors(), WordErrors(), Latencies()
    left_out: list[str] = []
    ends: dict[Path, list[float] | str] = {}
    for playback in played:
        latencies += step_latencies(playback.timeline)
        if playback.path not in reference_of:
            left_out.append("no reference text")
            continue
        reference = reference_of[playback.path]
        final += word_errors(reference, playback.text)
        live += word_errors(reference, playback.live_text)
        if aligner is None:
            continue
        if not lines_up(words(reference), words(playback.live_text)):
            left_out.append("the live words do not line up with the reference")
            continue
        if playback.path not in ends:
            ends[playback.path] = _word_ends(aligner, playback.path, reference)
        word_ends = ends[playback.path]
        if isinstance(word_ends, str):
            left_out.append(word_ends)
        else:
            latencies += word_latencies(playback.timeline, word_ends)
    return Measured(final=final, live=live, latencies=latencies, left_out=tuple(left_out))


def _word_ends(aligner: WordAligner, path: Path, reference: str) -> list[float] | str:
    """Seconds at which the words end; or why not."""
    shortest_s, longest_s = ALIGNABLE_S
    audio = read_audio(path)
    if not shortest_s <= len(audio) / MODEL_RATE <= longest_s:
        return f"words are found in recordings of {shortest_s:g} to {longest_s:g} s alone"
    return aligner.word_ends(audio, words(reference))


def command(  # noqa: PLR0913  # the options of a command are its parameters
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="WAV, FLAC, MP3, Ogg/Opus; any rate.")],
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    ca: CaOption = None,
    streams: Annotated[int, typer.Option(min=1, max=10_000, help="Streams side by side; the files are dealt out.")] = 1,
    speed: Annotated[float, typer.Option(min=0.01, max=1000.0, help="Seconds of audio per second.")] = 1.0,
    chunk_ms: Annotated[int, typer.Option(min=20, max=100, help="Audio of one message.")] = 40,
    silence_s: Annotated[
        float, typer.Option(min=0.0, max=60.0, help="Silence after each file, as an open microphone sends it.")
    ] = 1.5,
    text: Annotated[str | None, typer.Option(help="Reference text of the only file.")] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="TSV with the columns file or id, and text; default: the manifest.tsv beside or above a file."
        ),
    ] = None,
) -> None:
    """Stream files over websockets like microphones; print text as it comes, word errors and latency at the end."""
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    access = access_of(url, key, ca)
    try:
        reference_of = references(files, text, manifest)
    except BadParameter as error:
        raise typer.BadParameter(str(error)) from error
    if goes_in_clear(url, access):
        errors.print(KEY_IN_CLEAR, style="yellow")
    pace = Pace(speed=speed, chunk_ms=chunk_ms, silence_s=silence_s)
    with ReplayView(console, streams) as view:
        outcome = asyncio.run(Replay(url=url, pace=pace, view=view, access=access).run(files, streams))
    if outcome.played:
        _report(outcome.played, reference_of, console, errors)
    for path, why in outcome.failures.items():
        errors.print(f"{path}: {why}", style="red", soft_wrap=True, markup=False)
    if outcome.refused is not None:
        errors.print(f"{url}: {outcome.refused}", style="red", soft_wrap=True, markup=False)
        raise typer.Exit(exit_code(outcome.refused))
    if outcome.failures:
        raise typer.Exit(EXIT_FAULT)


def _report(played: Sequence[Playback], reference_of: Mapping[Path, str], console: Console, errors: Console) -> None:
    """Texts, word errors and latency."""
    with errors.status("aligning words"):
        aligner = _aligner(errors) if any(playback.path in reference_of for playback in played) else None
        measured = measure(played, reference_of, aligner)
    print_texts(console, played, reference_of)
    if measured.final.reference_words:
        print_word_errors(console, measured.final, measured.live)
    print_latencies(console, measured.latencies)
    print_left_out(console, measured.left_out, len(played))


def _aligner(errors: Console) -> WordAligner | None:
    """The forced aligner; imported here because it needs torch, and a replay without reference texts does not."""
    from asr_model.alignment import Aligner
    from asr_model.moonshine.weights import WeightsError, load_weights

    try:
        return Aligner(load_weights())
    except WeightsError as error:
        errors.print(f"no word and final delays: {error}", style="yellow", markup=False)
        return None
