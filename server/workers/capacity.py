"""How many sequences an instance holds in real time: measured at warm-up with speech, never guessed.

Runs where the model runs (a worker), on a store of its own that is gone before the service's slots are taken.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Final

import numpy as np
import soundfile

from asr_model.contract import ModelSpec, StreamingModel
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchRow, Samples
from server.workers.instance import StreamingInstance
from server.workers.orders import LoadLimits
from server.workers.slot_step import SlotInstance

SAMPLE_RATE: Final = 16_000
TICKS: Final = 12
"""Ticks a measurement runs: enough for words to be read, some 3 s of speech at 240 ms."""
BUCKET_TICKS: Final = 2
"""Ticks of a batch size that is only warmed up: for allocations."""
KERNEL_TICKS: Final = 6
"""The same where kernels are made for each size: until words are read too."""
SETTLING_TICKS: Final = 4
"""First ticks that are not timed: lazy allocations, and hardly anything to read yet."""
RUN_LIMIT_NS: Final = 2_000_000_000
"""Time after which a run ends early, once it has timed at least one tick."""
BUDGET_NS: Final = 6_000_000_000
"""Time that all runs may take together; none is begun that would exceed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One point of the measurement."""

    batch: int
    step_ns: float
    """Mean over the timed ticks."""
    spent_ns: float
    """Time that the run took in all."""


def speech(*, seconds: float) -> Samples:
    """Warm-up audio, repeated as needed: float32 [16000 * seconds], speech if the package carries some, else bursts of
    noise, which cost a model about as much."""
    n_samples = round(seconds * SAMPLE_RATE)
    with resources.as_file(resources.files("asr_model") / "weights" / "warmup.flac") as path:
        audio = _read(str(path)) if path.is_file() else _bursts(n_samples)
    return np.resize(audio, n_samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a measurement found."""

    streams: int
    """Largest number of sequences, all talking, whose step takes no longer than a tick; at least 1."""
    batches: frozenset[int]
    """Batch sizes that it ran: the model is warm with them."""


def warm_up(instance: SlotInstance, spec: ModelSpec, batches: Iterable[int]) -> None:
    """Speech and a flush through steps of each of these sizes, so that no client is the first to meet one; then every
    slot is as new.

    Args:
        instance: With as many slots as the largest batch at least, none of them in use.
        spec: Of its model.
        batches: A batch of one gets some seconds, until words are read; the others a few ticks.

    Raises:
        RuntimeError: The model failed.
    """
    bucket_ticks = BUCKET_TICKS if spec.optimize == "none" else KERNEL_TICKS
    for batch in batches:
        _run(instance, spec, batch, TICKS if batch == 1 else bucket_ticks)
    instance.store.initialise(range(instance.store.slots))


def measure_streams(model: StreamingModel, device: str, limits: LoadLimits) -> Measured:
    """How many sequences the model holds in real time.

    Raises:
        RuntimeError: The model failed.
    """
    tick_ns = model.spec.tick_samples * 1_000_000_000 / SAMPLE_RATE
    points = [_measure(model, device, 1)]
    batches = {1}
    spent_ns = points[0].spent_ns
    if spent_ns < BUDGET_NS / 10:  # a model that is quick with one row is measured once it is warm
        points.clear()
    batch = 2 if points else 1
    while batch <= min(limits.max_batch, limits.max_slots * 2) and not (points and points[-1].step_ns >= tick_ns):
        if points and spent_ns + 2 * points[-1].spent_ns > BUDGET_NS:
            break
        points.append(_measure(model, device, batch))
        batches.add(batch)
        spent_ns += points[-1].spent_ns
        batch *= 2
    return Measured(streams=streams_within(points, tick_ns, limits.max_batch), batches=frozenset(batches))


def streams_within(points: list[StepTime], tick_ns: float, max_batch: int) -> int:
    """Sequences that fit a tick, from step times at ascending batch sizes; at least 1.

    The last two points give what one more row costs: between them that is interpolation, beyond them (the measurement
    ended early) a line. Above ``max_batch`` a tick takes several full steps.
    """
    last = points[-1]
    before = points[-2] if len(points) > 1 else StepTime(batch=0, step_ns=0.0, spent_ns=0.0)
    row_ns = (last.step_ns - before.step_ns) / (last.batch - before.batch)
    if row_ns <= 0.0:  # one more row is lost in the noise: then charge each its share of the whole step
        row_ns = last.step_ns / last.batch
    streams = last.batch + (tick_ns - last.step_ns) / row_ns
    if streams > max_batch:
        full_step_ns = last.step_ns + (max_batch - last.batch) * row_ns
        streams = max_batch * tick_ns / full_step_ns
    return max(1, math.floor(streams))


def _measure(model: StreamingModel, device: str, batch: int) -> StepTime:
    return _run(StreamingInstance(model, batch, device), model.spec, batch, TICKS)


def _run(instance: SlotInstance, spec: ModelSpec, batch: int, ticks: int) -> StepTime:
    """``batch`` new sequences, each at another place of the speech, for so many ticks or until the limit."""
    audio = speech(seconds=((ticks + 1) * spec.tick_samples + spec.lookahead_samples) / SAMPLE_RATE)
    voices = [np.roll(audio, -index * len(audio) // batch) for index in range(batch)]
    times_ns = []
    last = 0
    for tick in range(ticks):
        first, last = last, (tick + 1) * spec.tick_samples + spec.lookahead_samples
        times_ns.append(_step(instance, first, [voice[first:last] for voice in voices]))
        if tick >= SETTLING_TICKS and sum(times_ns) > RUN_LIMIT_NS:
            break
    rest = [voice[last : last + spec.tick_samples // 2] for voice in voices]
    flush_ns = _step(instance, last, rest, flush=True)
    timed = times_ns[min(SETTLING_TICKS, len(times_ns) - 1) :]
    return StepTime(batch=batch, step_ns=sum(timed) / len(timed), spent_ns=sum(times_ns) + flush_ns)


def _step(instance: SlotInstance, first_sample: int, audio: list[Samples], *, flush: bool = False) -> int:
    rows = tuple(
        BatchRow(
            slot=SlotIndex(index),
            generation=0,
            sequence_id=SequenceId(f"warm-up-{index}"),
            start=first_sample == 0,
            flush=flush,
            end=flush,
            first_sample=first_sample,
            n_samples=len(samples),
            ready_at_ns=0,
        )
        for index, samples in enumerate(audio)
    )
    outcome = instance.run_step(BatchPlan(plan_id=0, instance=InstanceIndex(0), rows=rows, audio=tuple(audio)))
    if isinstance(outcome, BatchFailure):
        raise RuntimeError(f"warm-up step failed: {outcome.error}")
    errors = [row.error for row in outcome.rows if row.error is not None]
    if errors:
        raise RuntimeError(f"warm-up step failed: {errors[0]}")
    return outcome.step_ns


def _read(path: str) -> Samples:
    audio, rate = soundfile.read(path, dtype="float32")
    if rate != SAMPLE_RATE or audio.ndim != 1:
        raise RuntimeError(f"{path} is not 16 kHz mono")
    return np.asarray(audio, dtype=np.float32)


def _bursts(n_samples: int) -> Samples:
    """Noise at the level of speech, four bursts a second."""
    noise = np.random.default_rng(0).standard_normal(n_samples).astype(np.float32)
    envelope = 0.05 * (1.0 + np.sin(2 * np.pi * 4.0 * np.arange(n_samples, dtype=np.float32) / SAMPLE_RATE))
    return np.asarray(noise * envelope, dtype=np.float32)
