"""Engines on accumulator models, and what a caller does with a sequence."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from server.clock import Clock, SystemClock
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig, FinalSettings, LiveSettings, TensorSettings
from server.engine.sequence_handle import SequenceHandle
from server.engine.served_model import SequenceTurn
from server.errors import CapacityExceeded
from server.events import Event, Partial, SequenceClosed, SequenceFailed, UtteranceFinal
from server.ids import SequenceId
from server.plan import CorrelationId, Tensors
from server.workers.orders import ModelSource
from server.workers.worker import WorkerKind
from tests.support.accumulator_model import LOOKAHEAD_SAMPLES, TICK_SAMPLES, exact_audio, summary

ACCUMULATOR = ModelSource(name="accumulator", factory="tests.support.accumulator_model:make_live")
SUM = ModelSource(name="sum", factory="tests.support.accumulator_model:make_final")
LIVE = LiveSettings(source=ACCUMULATOR, instances=2, device="cpu", threads=1, slots=4, max_delay_ms=0.0)
FINAL = FinalSettings(source=SUM, device="cpu", threads=1, window_ms=0.0)
CONFIG = EngineConfig(live=LIVE, final=FINAL, worker_kind=WorkerKind.THREAD, idle_timeout_s=0.0)
"""Two live instances of four slots, one final instance, in threads."""


def live_only(
    *, instances: int = 2, slots: int = 4, max_queued_s: float = 10.0, step_s: float = 0.0, max_delay_ms: float = 0.0
) -> EngineConfig:
    """CONFIG without a final model, with changes to the live one."""
    source = replace(ACCUMULATOR, options={"step_s": step_s})
    live = replace(LIVE, source=source, instances=instances, slots=slots)
    live = replace(live, max_queued_s=max_queued_s, max_delay_ms=max_delay_ms)
    return replace(CONFIG, live=live, final=None)


@asynccontextmanager
async def running(config: EngineConfig, clock: Clock | None = None) -> AsyncIterator[Engine]:
    """The engine, started, and stopped whatever happens."""
    engine = Engine(config, clock or SystemClock())
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@dataclass(slots=True, kw_only=True)
class Heard:
    """Everything a sequence was told."""

    events: list[Event] = field(default_factory=list)

    @property
    def partials(self) -> list[Partial]:
        return [event for event in self.events if isinstance(event, Partial)]

    @property
    def finals(self) -> list[UtteranceFinal]:
        return [event for event in self.events if isinstance(event, UtteranceFinal)]

    @property
    def final_texts(self) -> list[str]:
        """The final text of each utterance."""
        return [" ".join(word.text for word in event.words) for event in self.finals]

    @property
    def live_texts(self) -> list[str]:
        """The live text of each utterance."""
        return [" ".join(word.text for word in event.live_words) for event in self.finals]

    @property
    def terminal(self) -> SequenceClosed | SequenceFailed:
        """The one terminal event, which is the last."""
        terminals = [event for event in self.events if isinstance(event, SequenceClosed | SequenceFailed)]
        assert len(terminals) == 1, terminals
        assert self.events[-1] is terminals[0]
        return terminals[0]

    @property
    def failure(self) -> str:
        """The code of the error that ended the sequence."""
        terminal = self.terminal
        assert isinstance(terminal, SequenceFailed), terminal
        return terminal.error.code


async def listen(handle: SequenceHandle) -> Heard:
    """All events up to the terminal one."""
    return Heard(events=[event async for event in handle.events()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What a sequence of ``speak`` was, and everything that was wrong with what it heard."""

    n_samples: int
    n_ticks: int
    failures: list[str]


async def speak(engine: Engine, seed: int) -> Spoken:
    """A sequence of random length in random cuts with random Finalize, pauses and keep-alives; waits for a slot."""
    rng = random.Random(seed)
    audio = exact_audio(seed, rng.randrange(0, 3_000))
    handle = await _open(engine, SequenceId(f"speaker-{seed}"))
    hearing = asyncio.create_task(listen(handle))
    position, marks = 0, [0]
    while position < audio.size:
        n_samples = rng.choice((1, 7, 63, 64, 65, 400))
        await handle.send(audio[position : position + n_samples])
        position = min(audio.size, position + n_samples)
        if rng.random() < 0.2:
            await handle.finalize()
            marks.append(position)
        if rng.random() < 0.3:
            handle.keep_alive()
            await asyncio.sleep(0)
    await handle.end()
    heard = await hearing
    marks.append(audio.size)
    spans = list(itertools.pairwise(marks))
    failures = [] if isinstance(heard.terminal, SequenceClosed) else [str(heard.terminal)]
    expected_finals = [summary(audio[first:end]) if first < end else "" for first, end in spans]
    expected_live = [summary(audio[:end]) if first < end else "" for first, end in spans]
    if heard.final_texts != expected_finals:
        failures.append(f"speaker {seed} final: {heard.final_texts}, not {expected_finals}")
    if heard.live_texts != expected_live:
        failures.append(f"speaker {seed} live: {heard.live_texts}, not {expected_live}")
    failures += [
        f"speaker {seed}: {event}"
        for event in heard.partials
        for word in event.committed
        if word.text != summary(audio[: round(event.covered_s * 16_000)])
    ]
    return Spoken(
        n_samples=audio.size, n_ticks=max(0, (audio.size - LOOKAHEAD_SAMPLES) // TICK_SAMPLES), failures=failures
    )


async def _open(engine: Engine, sequence_id: SequenceId) -> SequenceHandle:
    while True:
        try:
            return engine.open(sequence_id)
        except CapacityExceeded:
            await asyncio.sleep(0.001)


async def until(condition: Callable[[], bool]) -> None:
    """Turns of the loop until a condition holds, for what workers bring about on their own."""
    async with asyncio.timeout(30.0):
        while not condition():  # noqa: ASYNC110 - the engine has no event for what tests look at
            await asyncio.sleep(0.001)


def further(name: str, model: str, **settings: object) -> TensorSettings:
    """A further model of the registry, on the CPU."""
    fields: dict[str, object] = {"device": "cpu", "threads": 1, "slots": 4} | settings
    options = fields.pop("options", {})
    source = ModelSource(name=model, options=options)  # type: ignore[arg-type]  # given as keywords
    return TensorSettings(name=name, source=source, **fields)  # type: ignore[arg-type]  # checked when it is made


def with_models(*models: TensorSettings, **changes: object) -> EngineConfig:
    """A small live model without finals, and these."""
    return replace(live_only(instances=1), models=models, **changes)  # type: ignore[arg-type]  # checked when it is made


def integers(*values: int) -> Tensors:
    """INPUT INT32 [B, 1]: a row of each."""
    return Tensors(arrays={"INPUT": np.array(values, dtype=np.int32)[:, None]}, n_rows=len(values))


def floats(*values: float) -> Tensors:
    """INPUT FP32 [1, N]: one row."""
    return Tensors(arrays={"INPUT": np.array([values], dtype=np.float32)})


def turn(correlation_id: CorrelationId, *, start: bool = False, end: bool = False) -> SequenceTurn:
    """A place in a sequence."""
    return SequenceTurn(correlation_id=correlation_id, start=start, end=end)


def output(answer: Tensors, name: str = "OUTPUT") -> list[float]:
    """The values of an answer."""
    values: list[float] = answer.arrays[name].ravel().tolist()
    return values
