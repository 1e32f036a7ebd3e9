"""The bench over real instances: ``StreamingInstance`` or ``TensorStreamingInstance`` run the plans, on state stores.

What every sequence heard is kept, to be compared with the same sequence alone.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from asr_model.contract import ModelSpec
from server.batching.sequence_batcher import SequenceBatcherConfig
from server.effects import RowCompleted, SequenceEffect
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, RowResult, Samples, Tensors
from server.workers.instance import StreamingInstance
from server.workers.tensor_instance import TensorStreamingInstance
from tests.support.bench import Bench
from tests.support.crowd_models import GARBAGE, CrowdModel, CrowdTensorModel, Heard, answered
from tests.support.runs import DueRow, Run, turn_values


class CrowdInstance:
    """One instance whose memory holds anything before its first steps."""

    def __init__(self, config: SequenceBatcherConfig, n_slots: int) -> None:
        self._model: CrowdModel | CrowdTensorModel
        self._instance: StreamingInstance | TensorStreamingInstance
        if config.takes_turns:
            self._model = CrowdTensorModel(ragged="INPUT" in config.ragged)
            self._instance = TensorStreamingInstance(self._model, n_slots, "cpu")
        else:
            self._model = CrowdModel()
            self._instance = StreamingInstance(self._model, n_slots, "cpu")
        for name in _plain_names(self._model.spec):
            self._instance.store.tensors[name].fill_(GARBAGE)

    @property
    def cache_bytes_used(self) -> int:
        """Of the cache that grows."""
        return self._instance.store.cache_bytes_used

    def run(
        self, plan: BatchPlan, *, errors: Mapping[int, str] | None = None, scrub: bool = True, step_ns: int = 0
    ) -> BatchResult:
        """Run a plan; rows of ``errors`` fail and leave their slot in doubt."""
        self._model.failing = frozenset(plan.rows[index].sequence_id for index in errors or ())
        outcome = self._instance.run_step(plan if scrub else replace(plan, scrub=()))
        assert isinstance(outcome, BatchResult), outcome
        for index, row in enumerate(outcome.rows):
            assert (row.error is not None) == (index in (errors or ())), row
        return replace(outcome, step_ns=step_ns, rows=tuple(_heard(row) for row in outcome.rows))

    def break_down(self, plan: BatchPlan) -> None:
        """The step fails half done."""
        self._model.is_broken = True
        outcome = self._instance.run_step(plan)
        self._model.is_broken = False
        assert isinstance(outcome, BatchFailure) or not plan.rows


class CrowdBench(Bench):
    """``Bench``, and what everybody heard."""

    def __init__(self, config: SequenceBatcherConfig) -> None:
        self.heard: dict[Run, list[Heard]] = {}
        self.most_in_flight = 0
        super().__init__(config)

    def plan(self, barred: frozenset[int] = frozenset()) -> BatchPlan | None:
        """As of the bench."""
        plan = super().plan(barred)
        self.most_in_flight = max(self.most_in_flight, *(len(steps) for steps in self.in_flight.values()), 0)
        return plan

    def commit(
        self,
        instance: int,
        *,
        errors: tuple[str, ...] = (),
        failure: str | None = None,
        scrub: bool = True,
        newest: bool = False,
    ) -> list[SequenceEffect]:
        """As of the bench; an instance runs its steps in their order."""
        assert not newest
        if failure == "fail":
            self._instance(instance).break_down(self.in_flight[instance][0][0])
        return super().commit(instance, errors=errors, failure=failure, scrub=scrub)

    def cache_bytes_used(self) -> int:
        """Of all instances."""
        return sum(self._instance(index).cache_bytes_used for index in self.indexes)

    def differ_from_solo(self) -> list[str]:
        """Sequences, whatever became of them, of which a row was answered otherwise than alone on an instance."""
        alone = CrowdInstance(self.config, 1)
        return [run.name for run, heard in self.heard.items() if self._solo(run, alone, len(heard)) != heard]

    def _solo(self, run: Run, alone: CrowdInstance, n_rows: int) -> list[Heard]:
        outputs: list[Heard] = []
        for index, row in enumerate(run.rows(self.config)[:n_rows]):
            plan = _solo_plan(run, row, index)
            output = alone.run(plan).rows[0].output
            assert isinstance(output, Heard)
            outputs.append(output)
        return outputs

    def _check_completed(
        self, plan: BatchPlan, row: BatchRow, effect: RowCompleted, due: DueRow, *, is_first: bool
    ) -> None:
        heard = effect.output
        assert isinstance(heard, Heard)
        assert heard.cached in (None, heard.reading), "the cache holds something else"
        self.heard.setdefault(self.live[row.sequence_id], []).append(heard)
        super()._check_completed(plan, row, replace(effect, output=heard.reading), due, is_first=is_first)

    def _model(self, instance: InstanceIndex) -> CrowdInstance:
        return CrowdInstance(self.config, self.config.slots_of(instance))

    def _instance(self, instance: int) -> CrowdInstance:
        model = self.models[instance]
        assert isinstance(model, CrowdInstance)
        return model


def _heard(row: RowResult) -> RowResult:
    return replace(row, output=answered(row.output.arrays)) if isinstance(row.output, Tensors) else row


def _plain_names(spec: ModelSpec) -> list[str]:
    return [name for name, entry in spec.state.items() if not entry.page]


def _solo_plan(run: Run, due: DueRow, index: int) -> BatchPlan:
    audio: tuple[Samples, ...] = ()
    tensors: tuple[Tensors, ...] = ()
    if run.turns:
        tensors = (Tensors(arrays={"INPUT": turn_values(run.turns[index].value, due.shape)}),)
    else:
        audio = (np.array(run.sent[due.first_sample : due.end_sample], dtype=np.float32),)
    row = BatchRow(
        slot=SlotIndex(0),
        generation=1,
        sequence_id=SequenceId("alone"),
        start=due.start,
        flush=due.flush,
        end=due.end,
        first_sample=due.first_sample,
        n_samples=due.end_sample - due.first_sample,
        ready_at_ns=0,
        request_id=RequestId(index),
        correlation_id="alone",
    )
    return BatchPlan(plan_id=index, instance=InstanceIndex(0), rows=(row,), audio=audio, tensors=tensors)
