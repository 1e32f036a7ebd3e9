"""Slots come from a measurement: its arithmetic by table, the measurement itself on a model of known cost."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from asr_model.contract import SlotRange, State, StepOutput, StepRow
from server.workers import capacity
from server.workers.capacity import StepTime, measure_streams, speech, streams_within, warm_up
from server.workers.instance import StreamingInstance
from server.workers.orders import LoadLimits
from tests.support.accumulator_model import TICK_SAMPLES, AccumulatorModel

TICK_NS = TICK_SAMPLES * 1e9 / 16_000


@pytest.mark.parametrize(
    ("step_ns_by_batch", "max_batch", "streams"),
    [
        ({1: 250}, 64, 1),  # not even one in real time: one all the same
        ({1: 100}, 64, 1),
        ({1: 50}, 64, 2),  # nothing is known of a second row but the cost of the first
        ({1: 20, 2: 40, 4: 80, 8: 160}, 64, 5),  # interpolated between 4 and 8
        ({1: 20, 2: 30, 4: 50}, 64, 9),  # ended early: a line through the last two
        ({1: 10, 2: 10, 4: 10}, 4, 40),  # full batches of 4, ten to a tick
        ({1: 10, 2: 20, 4: 40}, 4, 10),
        ({1: 10, 2: 8}, 64, 25),  # cheaper with more rows: noise, so a share of the step each
        ({1: 60, 2: 90, 4: 110}, 64, 3),
    ],
)
def test_streams_from_step_times(step_ns_by_batch: dict[int, int], max_batch: int, streams: int) -> None:
    points = [StepTime(batch=batch, step_ns=step_ns, spent_ns=0.0) for batch, step_ns in step_ns_by_batch.items()]
    assert streams_within(points, 100.0, max_batch) == streams


@pytest.mark.parametrize(("streams", "slots"), [(1, 1), (10, 8), (11, 8), (19, 15), (1000, 20)])
def test_slots_are_a_part_of_the_streams(streams: int, slots: int) -> None:
    limits = LoadLimits(max_slots=20, load_fraction=0.8, max_batch=64, cpu_share=0.5)
    assert limits.slots(streams, "cuda:0") == slots
    assert limits.slots(streams, "cpu") == max(1, min(20, int(0.4 * streams)))


class Costly(AccumulatorModel):
    """A step takes a share of a tick a row, at least."""

    def __init__(self, share: float = 0.2) -> None:
        super().__init__()
        self.batches: list[int] = []
        self._row_ns = share * TICK_NS

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        self.batches.append(len(rows))
        deadline_ns = time.perf_counter_ns() + len(rows) * self._row_ns
        while time.perf_counter_ns() < deadline_ns:
            pass
        return super().step(rows, state)


def test_a_measurement_finds_what_fits_a_tick_and_stops_there() -> None:
    model = Costly()
    measured = measure_streams(model, "cpu", LoadLimits())
    assert 1 <= measured.streams <= 5
    assert set(model.batches) == measured.batches
    assert measured.batches <= {1, 2, 4, 8}


def test_a_measurement_stays_within_the_largest_batch() -> None:
    model = Costly(share=0.0)
    measure_streams(model, "cpu", LoadLimits(max_batch=2))
    assert set(model.batches) == {1, 2}


def test_a_slow_machine_is_not_measured_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Costly()
    monkeypatch.setattr(capacity, "RUN_LIMIT_NS", 0)
    monkeypatch.setattr(capacity, "BUDGET_NS", 0)
    assert measure_streams(model, "cpu", LoadLimits()).streams <= 5
    assert model.batches == [1] * (capacity.SETTLING_TICKS + 2)


def test_a_model_that_fails_is_not_taken_into_service() -> None:
    class Failing(AccumulatorModel):
        def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
            raise RuntimeError("no")

    class FailingRow(AccumulatorModel):
        def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
            return StepOutput(outputs=[None], errors={0: "bad"})

    for model in (Failing(), FailingRow()):
        with pytest.raises(RuntimeError, match="warm-up"):
            warm_up(StreamingInstance(model, 1, "cpu"), model.spec, (1,))


def test_warm_up_runs_every_size_and_leaves_every_slot_as_new() -> None:
    model = Costly()
    instance = StreamingInstance(model, 3, "cpu")
    instance.store.tensors["total"].fill_(1.0)
    warm_up(instance, model.spec, (1, 3))
    assert model.batches == [1] * (capacity.TICKS + 1) + [3] * (capacity.BUCKET_TICKS + 1)
    assert all(instance.store.is_clean(slot) for slot in range(3))


def test_kernels_that_are_made_for_a_size_hear_enough_at_every_size() -> None:
    model = Costly()
    spec = replace(model.spec, optimize="cuda-graph")
    warm_up(StreamingInstance(model, 2, "cpu"), spec, (2,))
    assert model.batches == [2] * (capacity.KERNEL_TICKS + 1)


def test_warm_up_audio_has_the_length_asked_for_and_is_no_silence() -> None:
    audio = speech(seconds=3.5)
    assert audio.shape == (56_000,)
    assert audio.dtype == np.float32
    assert 0.01 < float(np.sqrt(np.mean(audio**2))) < 0.5
    assert float(np.abs(audio).max()) <= 1.0
