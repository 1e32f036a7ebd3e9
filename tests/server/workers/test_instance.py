"""An instance runs plans: START inside the step, nobody else's slot touched, every failure a result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from asr_model.contract import ModelSpec, Samples, Scheduler, State, StateTensor, StepOutput, StepRow
from asr_model.transcript import FinalOutput, LiveOutput
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Request, RequestBatch
from server.workers.instance import OneShotInstance, StreamingInstance, build, resolve_device
from server.workers.orders import ModelSource
from tests.support.accumulator_model import BOMB, POISON, AccumulatorModel, SumModel, exact_audio, summary


def row(slot: int, samples: Samples, *, start: bool = False, flush: bool = False, end: bool = False) -> BatchRow:
    return BatchRow(
        slot=SlotIndex(slot),
        generation=1,
        sequence_id=SequenceId(f"s{slot}"),
        start=start,
        flush=flush,
        end=end,
        first_sample=0,
        n_samples=samples.size,
        ready_at_ns=0,
    )


def plan(
    slots: Sequence[int], audio: Sequence[Samples], *, start: bool = False, scrub: Sequence[int] = ()
) -> BatchPlan:
    return BatchPlan(
        plan_id=5,
        instance=InstanceIndex(0),
        rows=tuple(row(slot, samples, start=start) for slot, samples in zip(slots, audio, strict=True)),
        audio=tuple(audio),
        scrub=tuple(SlotIndex(slot) for slot in scrub),
    )


def batch(*audio: Samples) -> RequestBatch:
    requests = tuple(Request(request_id=RequestId(i), samples=samples) for i, samples in enumerate(audio))
    return RequestBatch(plan_id=9, instance=InstanceIndex(0), requests=requests, queued_at_ns=(0,) * len(audio))


def text(result: BatchResult | BatchFailure, index: int = 0) -> str:
    assert isinstance(result, BatchResult)
    output = result.rows[index].output
    assert isinstance(output, LiveOutput | FinalOutput)
    words = output.committed if isinstance(output, LiveOutput) else output.words
    return words[0].text


def with_sample(value: float) -> Samples:
    audio = exact_audio(0, 64)
    audio[10] = value
    return audio


def test_rows_accumulate_in_their_own_slots() -> None:
    instance = StreamingInstance(AccumulatorModel(), 3, "cpu")
    a, b, c, d = (exact_audio(seed, 64) for seed in range(4))
    instance.run_step(plan([2, 0], [a, b], start=True))
    result = instance.run_step(plan([0, 2], [c, d]))
    assert isinstance(result, BatchResult)
    assert text(result, 0) == summary(np.concatenate((b, c)))
    assert text(result, 1) == summary(np.concatenate((a, d)))
    assert result.plan_id == 5
    assert result.step_ns > 0
    assert result.counters == {"encoder_frames": 20}


def test_start_wipes_the_former_tenant_inside_the_step() -> None:
    instance = StreamingInstance(AccumulatorModel(), 2, "cpu")
    instance.run_step(plan([1], [exact_audio(1, 64)], start=True))
    for tensor in instance.store.tensors.values():
        tensor.fill_(float("nan") if tensor.is_floating_point() else 99)
    audio = exact_audio(2, 64)
    assert text(instance.run_step(plan([1], [audio], start=True))) == summary(audio)


def test_slots_outside_the_plan_stay_bit_for_bit() -> None:
    instance = StreamingInstance(AccumulatorModel(), 4, "cpu")
    for tensor in instance.store.tensors.values():
        tensor.fill_(float("nan") if tensor.is_floating_point() else 99)
    before = {name: tensor.clone() for name, tensor in instance.store.tensors.items()}
    instance.run_step(plan([1], [exact_audio(1, 64)], start=True, scrub=[3]))
    for name, tensor in instance.store.tensors.items():
        for slot in (0, 2):
            assert torch.equal(
                tensor[slot].reshape(-1).view(torch.uint8), before[name][slot].reshape(-1).view(torch.uint8)
            )


def test_scrub_proves_slots_clean_also_without_rows() -> None:
    instance = StreamingInstance(AccumulatorModel(), 3, "cpu")
    instance.store.tensors["total"].fill_(5.0)
    result = instance.run_step(plan([], [], scrub=[0, 2]))
    assert isinstance(result, BatchResult)
    assert result.scrubbed == (0, 2)
    assert instance.store.tensors["total"].tolist() == [0.0, 5.0, 0.0]


def test_a_slot_that_does_not_come_clean_is_not_reported_clean() -> None:
    class Stained(AccumulatorModel):
        @property
        def spec(self) -> ModelSpec:
            stain = StateTensor(shape=(), dtype=torch.float32, initial=float("nan"))
            return replace(super().spec, state={**super().spec.state, "stain": stain})

    result = StreamingInstance(Stained(), 1, "cpu").run_step(plan([], [], scrub=[0]))
    assert isinstance(result, BatchResult)
    assert result.scrubbed == ()


def test_a_failing_step_is_a_failure_without_internals() -> None:
    instance = StreamingInstance(AccumulatorModel(), 1, "cpu")
    result = instance.run_step(plan([0], [with_sample(BOMB)], start=True))
    assert result == BatchFailure(plan_id=5, error="RuntimeError")


def test_an_error_of_the_device_loses_the_instance() -> None:
    class Crashing(AccumulatorModel):
        def step(self, rows: Sequence[StepRow], state: State) -> StepOutput:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    result = StreamingInstance(Crashing(), 1, "cpu").run_step(plan([0], [exact_audio(0, 64)], start=True))
    assert result == BatchFailure(plan_id=5, error="RuntimeError", instance_lost=True)


def test_a_row_error_is_that_rows_alone() -> None:
    instance = StreamingInstance(AccumulatorModel(), 2, "cpu")
    audio = exact_audio(3, 64)
    result = instance.run_step(plan([0, 1], [with_sample(POISON), audio], start=True))
    assert isinstance(result, BatchResult)
    assert result.rows[0].error == "poison"
    assert result.rows[0].output is None
    assert text(result, 1) == summary(audio)


def test_a_model_that_answers_other_rows_fails_the_step() -> None:
    class Short(AccumulatorModel):
        def step(self, rows: Sequence[StepRow], state: State) -> StepOutput:
            return StepOutput(outputs=())

    result = StreamingInstance(Short(), 1, "cpu").run_step(plan([0], [exact_audio(0, 64)], start=True))
    assert isinstance(result, BatchFailure)
    assert not result.instance_lost


def test_no_gradients_are_recorded() -> None:
    class Asking(AccumulatorModel):
        def step(self, rows: Sequence[StepRow], state: State) -> StepOutput:
            return StepOutput(outputs=[torch.is_inference_mode_enabled()])

    result = StreamingInstance(Asking(), 1, "cpu").run_step(plan([0], [exact_audio(0, 64)], start=True))
    assert isinstance(result, BatchResult)
    assert result.rows[0].output is True


def test_one_shot_results_come_in_the_order_of_the_requests_with_pauses_between() -> None:
    pauses: list[None] = []
    instance = OneShotInstance(SumModel(), lambda: pauses.append(None))
    audio = [exact_audio(seed, 10 + seed) for seed in range(3)]
    result = instance.run_batch(batch(*audio))
    assert isinstance(result, BatchResult)
    assert [text(result, index) for index in range(3)] == [summary(samples) for samples in audio]
    assert len(pauses) == 3
    assert result.counters == {"requests": 3, "samples": 33}


def test_a_failing_batch_is_a_failure_without_internals() -> None:
    result = OneShotInstance(SumModel(), lambda: None).run_batch(batch(with_sample(POISON)))
    assert result == BatchFailure(plan_id=9, error="RuntimeError")


def test_a_one_shot_model_that_answers_other_requests_fails_the_batch() -> None:
    class Mute(SumModel):
        def run(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[FinalOutput]:
            return []

    assert isinstance(OneShotInstance(Mute(), lambda: None).run_batch(batch(exact_audio(0, 5))), BatchFailure)


def test_a_model_comes_from_its_factory_or_from_the_registry() -> None:
    source = ModelSource(name="any", factory="tests.support.accumulator_model:make_live", options={})
    assert build(source, "cpu").spec.scheduler is Scheduler.SEQUENCE
    with pytest.raises(ValueError, match="no-such-model"):
        build(ModelSource(name="no-such-model"), "cpu")
    options: Mapping[str, bool | int | float | str] = {"bogus": 1}
    with pytest.raises(ValueError, match="bogus"):
        build(replace(source, options=options), "cpu")


def test_devices_are_resolved_or_refused() -> None:
    n_devices = torch.cuda.device_count()
    assert resolve_device("cpu", 3) == "cpu"
    assert resolve_device("auto", 3) == (f"cuda:{3 % n_devices}" if n_devices else "cpu")
    with pytest.raises(ValueError, match=f"cuda:{n_devices}"):
        resolve_device(f"cuda:{n_devices}", 0)
