"""Closed-loop clients of an engine: each plays utterances, the next tick when the one before was answered.

Nobody waits for the clock, so a slow machine plays slower and nothing else changes: between two runs only the number of
clients and the scheduler differ. A client that sent in real time would be the same to the scheduler on a machine that
keeps up, and on one that does not would only add what overload does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from asr_model.transcript import Word, joined
from clients.demo.tick_story import ToldTick
from clients.demo.utterances import Utterance, deal
from server.engine.engine import Engine
from server.errors import MoorageError
from server.events import Event, Partial, SequenceClosed, SequenceFailed, StepInfo, UtteranceFinal
from server.ids import SequenceId
from server.plan import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class TickGrid:
    """When ticks are complete: tick k = 1, 2, … with sample ``tick_samples * k + lookahead_samples``."""

    tick_samples: int
    lookahead_samples: int

    def pieces(self, samples: Samples) -> list[Samples]:
        """The audio cut so that each piece but the last completes one tick, and the last completes none."""
        first, end = 0, self.tick_samples + self.lookahead_samples
        pieces: list[Samples] = []
        while end <= samples.size:
            pieces.append(samples[first:end])
            first, end = end, end + self.tick_samples
        return [*pieces, samples[first:]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """One utterance as a client heard it."""

    utterance: Utterance
    text: str
    """The live text of all that was said to be an utterance: no second pass has seen it."""
    ticks: tuple[ToldTick, ...]
    failure: str = ""
    """Why the sequence broke off; "": it did not."""


@dataclass(slots=True, kw_only=True)
class _Heard:
    """What one client has been told so far."""

    finals: list[str] = field(default_factory=list)
    ticks: list[ToldTick] = field(default_factory=list)
    failure: str = ""

    @property
    def text(self) -> str:
        return " ".join(text for text in self.finals if text)

    def note(self, step: StepInfo, words: tuple[Word, ...], *, is_flush: bool) -> None:
        """A tick, or the flush, was answered; ``words`` are those of the open utterance."""
        text = " ".join(part for part in (self.text, joined(words)) if part)
        self.ticks.append(
            ToldTick(
                tick=len(self.ticks) + 1,
                instance=step.instance,
                batch_size=step.batch_size,
                text=text,
                is_flush=is_flush,
            )
        )


async def play(engine: Engine, grid: TickGrid, utterance: Utterance, sequence_id: SequenceId) -> Played:
    """One utterance from START to END."""
    handle = engine.open(sequence_id)
    events, heard = handle.events(), _Heard()
    try:
        *ticks, rest = grid.pieces(utterance.samples)
        for piece in ticks:
            await handle.send(piece)
            await _until_tick(events, heard)
        await handle.send(rest)
        await handle.end()
    except MoorageError as error:  # the sequence is over; its terminal event says why, and perhaps was read before
        heard.failure = heard.failure or str(error)
    await _until_end(events, heard)
    return Played(utterance=utterance, text=heard.text, ticks=tuple(heard.ticks), failure=heard.failure)


async def play_all(
    engine: Engine, grid: TickGrid, hands: Sequence[Sequence[Utterance]], on_played: Callable[[Played], None]
) -> list[Played]:
    """All clients side by side, each its own utterances one after the other. Results in the order of the clients."""

    async def client(number: int, hand: Sequence[Utterance]) -> list[Played]:
        played = []
        for index, utterance in enumerate(hand):
            name = SequenceId(f"client {number}, {index}: {utterance.name}")
            played.append(await play(engine, grid, utterance, name))
            on_played(played[-1])
        return played

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(client(number, hand)) for number, hand in enumerate(hands)]
    return [each for task in tasks for each in task.result()]


def plays(utterances: Sequence[Utterance], clients: int) -> int:
    """Utterances that so many clients play together."""
    return sum(len(hand) for hand in deal(utterances, clients))


async def _until_tick(events: AsyncIterator[Event], heard: _Heard) -> None:
    """To the answer of the tick that was sent; or to the end, if there comes none."""
    async for event in events:
        match event:
            case UtteranceFinal():
                heard.finals.append(joined(event.live_words))
            case Partial():
                heard.note(event.step, event.committed + event.draft, is_flush=False)
                return
            case SequenceFailed():
                heard.failure = str(event.error)


async def _until_end(events: AsyncIterator[Event], heard: _Heard) -> None:
    """What the flush says, up to the terminal event."""
    async for event in events:
        match event:
            case UtteranceFinal():
                heard.finals.append(joined(event.live_words))
                heard.note(event.step, (), is_flush=True)
            case SequenceFailed():
                heard.failure = str(event.error)
            case SequenceClosed():
                pass
