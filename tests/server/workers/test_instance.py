"""An instance runs plans: START inside the step, nobody else's slot touched, every failure a result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from asr_model.contract import ModelSpec, Samples, Scheduler, SlotRange, State, StateTensor, StepOutput, StepRow
from asr_model.light.model import LOOKAHEAD_SAMPLES, TICK_SAMPLES, LightModel
from asr_model.transcript import FinalOutput, LiveOutput
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Request, RequestBatch, SlotSpan
from server.workers.capacity import speech
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
    requests = tuple(Request(request_id=RequestId(i), payload=samples) for i, samples in enumerate(audio))
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
        def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
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
        def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
            return StepOutput(outputs=())

    result = StreamingInstance(Short(), 1, "cpu").run_step(plan([0], [exact_audio(0, 64)], start=True))
    assert isinstance(result, BatchFailure)
    assert not result.instance_lost


def light() -> LightModel:
    return LightModel(torch.device("cpu"))


def voice(seed: int, n_samples: int) -> Samples:
    return np.roll(speech(seconds=4.0), -7_000 * seed)[:n_samples].copy()


def ticks(slot: int, audio: Samples, first_tick: int, n_ticks: int, *, start: bool = False) -> tuple[BatchRow, Samples]:
    """The row of some ticks of a sequence of the light model."""
    first = first_tick * TICK_SAMPLES + LOOKAHEAD_SAMPLES if first_tick else 0
    last = (first_tick + n_ticks) * TICK_SAMPLES + LOOKAHEAD_SAMPLES
    part = audio[first:last]
    return replace(row(slot, part, start=start), first_sample=first, n_ticks=n_ticks), part


def step(instance: StreamingInstance, *rows: tuple[BatchRow, Samples], span: SlotSpan | None = None) -> BatchResult:
    made = BatchPlan(
        plan_id=5,
        instance=InstanceIndex(0),
        rows=tuple(each for each, _ in rows),
        audio=tuple(audio for _, audio in rows),
        span=span,
    )
    result = instance.run_step(made)
    assert isinstance(result, BatchResult), result
    assert all(each.error is None for each in result.rows), result.rows
    return result


def state_bits(instance: StreamingInstance, slot: int) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in instance.store.snapshot(slot).items()}


def test_rows_of_several_ticks_are_as_their_ticks_one_by_one() -> None:
    """The light model, in company of rows of other lengths: each sequence hears what it hears tick by tick alone."""
    audio = [voice(seed, 20 * TICK_SAMPLES) for seed in range(3)]
    late, alone = StreamingInstance(light(), 4, "cpu"), StreamingInstance(light(), 4, "cpu")
    first = step(late, ticks(1, audio[0], 0, 4, start=True), ticks(3, audio[1], 0, 1, start=True))
    second = step(late, ticks(3, audio[1], 1, 2), ticks(0, audio[2], 0, 3, start=True), ticks(1, audio[0], 4, 1))
    told = {
        0: [*second.rows[1].earlier, second.rows[1].output],
        1: [*first.rows[0].earlier, first.rows[0].output, second.rows[2].output],
        3: [first.rows[1].output, *second.rows[0].earlier, second.rows[0].output],
    }
    for slot, n_ticks, voice_number in ((0, 3, 2), (1, 5, 0), (3, 3, 1)):
        one_by_one = [
            step(alone, ticks(slot, audio[voice_number], tick, 1, start=tick == 0)).rows[0].output
            for tick in range(n_ticks)
        ]
        assert told[slot] == one_by_one
        for name, tensor in late.store.snapshot(slot).items():
            torch.testing.assert_close(tensor, alone.store.snapshot(slot)[name], rtol=0, atol=1e-5)
    assert second.counters["ticks"] == 6


def test_a_model_of_several_ticks_a_pass_gets_them_whole_up_to_its_limit() -> None:
    class Late(AccumulatorModel):
        @property
        def spec(self) -> ModelSpec:
            return replace(super().spec, max_ticks=2)

        def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
            passes.append([each.n_ticks for each in rows])
            output = super().step(rows, state)
            return replace(output, earlier={i: ["first half"] for i, each in enumerate(rows) if each.n_ticks == 2})

    passes: list[list[int]] = []
    instance = StreamingInstance(Late(), 2, "cpu")
    audio = exact_audio(1, 5 * 64 + 7)
    long = replace(row(0, audio, start=True), n_ticks=5)
    short = row(1, exact_audio(2, 71), start=True)
    result = step(instance, (long, audio), (short, exact_audio(2, 71)))
    assert passes == [[2, 1], [2], [1]]
    assert [each if isinstance(each, str) else "heard" for each in result.rows[0].earlier] == [
        "first half",
        "heard",
        "first half",
        "heard",
    ]
    assert text(result) == summary(audio)
    assert result.rows[1].earlier == ()


def test_a_row_that_fails_in_one_of_its_ticks_hears_no_more_and_keeps_what_it_said() -> None:
    instance = StreamingInstance(AccumulatorModel(), 2, "cpu")
    audio = exact_audio(1, 3 * 64 + 7)
    audio[100] = POISON
    other = exact_audio(2, 3 * 64 + 7)
    rows = tuple(replace(row(slot, audio, start=True), n_ticks=3) for slot in (0, 1))
    made = BatchPlan(plan_id=5, instance=InstanceIndex(0), rows=rows, audio=(audio, other))
    result = instance.run_step(made)
    assert isinstance(result, BatchResult)
    (first,) = result.rows[0].earlier
    assert result.rows[0].error == "poison"
    assert isinstance(first, LiveOutput)
    assert first.committed[0].text == summary(audio[:71])
    assert int(instance.store.tensors["count"][0]) == 64 * 2 + 7, "the third tick was run"
    assert (text(result, 1), len(result.rows[1].earlier)) == (summary(other), 2)


def test_a_step_in_which_every_row_has_failed_is_over() -> None:
    instance = StreamingInstance(AccumulatorModel(), 1, "cpu")
    audio = exact_audio(1, 3 * 64 + 7)
    audio[10] = POISON
    rows = (replace(row(0, audio, start=True), n_ticks=3),)
    result = instance.run_step(BatchPlan(plan_id=5, instance=InstanceIndex(0), rows=rows, audio=(audio,)))
    assert isinstance(result, BatchResult)
    assert (result.rows[0].error, result.rows[0].earlier) == ("poison", ())
    assert int(instance.store.tensors["count"][0]) == 71, "the second tick was run"


def test_a_span_is_told_to_the_model_as_the_range_of_its_rows() -> None:
    class Watching(AccumulatorModel):
        def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
            spans.append(span)
            return super().step(rows, state)

    spans: list[SlotRange | None] = []
    instance = StreamingInstance(Watching(), 6, "cpu")
    audio = exact_audio(1, 2 * 64 + 7)
    late = (replace(row(3, audio, start=True), n_ticks=2), audio)
    short = (row(1, audio[:71], start=True), audio[:71])
    span = SlotSpan(first=SlotIndex(1), n_slots=3)
    step(instance, short, late, span=span)
    step(instance, short, late)
    assert spans == [SlotRange(first=1, n_slots=3), SlotRange(first=3, n_slots=1), None, None]


def test_the_sequence_is_told_to_the_model() -> None:
    class Watching(AccumulatorModel):
        def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
            names.extend(each.sequence_id for each in rows)
            return super().step(rows, state)

    names: list[str] = []
    StreamingInstance(Watching(), 3, "cpu").run_step(plan([2, 0], [exact_audio(0, 64)] * 2, start=True))
    assert names == ["s2", "s0"]


def test_a_start_in_a_mixed_step_is_a_new_sequence_and_the_others_go_on_bit_for_bit() -> None:
    """The light model: slot 2 had another tenant; slots 0 and 1 go on; slot 3 is in no row."""
    audio = [voice(seed, 8 * TICK_SAMPLES) for seed in range(4)]
    mixed, apart = StreamingInstance(light(), 4, "cpu"), StreamingInstance(light(), 4, "cpu")
    for instance in (mixed, apart):
        for slot in (0, 1, 2, 3) if instance is mixed else (0, 1, 3):
            step(instance, ticks(slot, audio[slot], 0, 2, start=True))
    idle = state_bits(mixed, 3)
    told = step(mixed, ticks(0, audio[0], 2, 1), ticks(2, audio[3], 0, 1, start=True), ticks(1, audio[1], 2, 1))
    expected = step(apart, ticks(0, audio[0], 2, 1), ticks(2, audio[3], 0, 1, start=True), ticks(1, audio[1], 2, 1))
    assert told.rows == expected.rows
    assert all(state_bits(mixed, slot) == state_bits(apart, slot) for slot in range(3))
    assert state_bits(mixed, 3) == idle


def test_no_gradients_are_recorded() -> None:
    class Asking(AccumulatorModel):
        def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
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
