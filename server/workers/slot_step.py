"""One step on slots, whatever the model takes: scrubs, initialises, runs, and turns whatever goes wrong into a result
(I2, I4)."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from server.plan import BatchFailure, BatchPlan, BatchResult, RowResult
from server.workers.orders import CACHE_BYTES, BatchOutcome
from server.workers.state_store import StateStore

logger = logging.getLogger(__name__)


class SlotInstance(Protocol):
    """A loaded model with the state of its slots."""

    @property
    def store(self) -> StateStore:
        """The state of all slots."""

    def run_step(self, plan: BatchPlan) -> BatchOutcome:
        """One step. Never raises for what a model does."""


class WrongAnswer(Exception):
    """The model answered what nobody asked; the words tell no internals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """What a model made of the rows of a plan."""

    rows: tuple[RowResult, ...]
    counters: Mapping[str, int] = field(default_factory=dict)


def run_on_slots(store: StateStore, plan: BatchPlan, step: Callable[[BatchPlan], Stepped]) -> BatchOutcome:
    """One step: scrubs, initialises the slots of START rows, runs ``step``. Never raises for what that does.

    Slots that the plan does not name stay as they are, bit for bit.
    """
    started_ns = time.perf_counter_ns()
    try:
        with torch.inference_mode():
            store.release(plan.vacated)
            scrubbed = tuple(slot for slot in plan.scrub if _scrub(store, slot))
            stepped = _step(store, plan, step) if plan.rows else Stepped(rows=())
    except WrongAnswer as error:
        logger.error("step %d of instance %d: %s", plan.plan_id, plan.instance, error)
        return BatchFailure(plan_id=plan.plan_id, error=str(error))
    except Exception as error:
        logger.exception("step %d of instance %d failed", plan.plan_id, plan.instance)
        return failure(plan.plan_id, error)
    counters = dict(stepped.counters)
    if store.cache_bytes:
        counters[CACHE_BYTES] = store.cache_bytes_used
    return BatchResult(
        plan_id=plan.plan_id,
        rows=stepped.rows,
        scrubbed=scrubbed,
        step_ns=time.perf_counter_ns() - started_ns,
        counters=counters,
    )


def failure(plan_id: int, error: Exception) -> BatchFailure:
    """The flat form of an exception: its kind, no internals. After an error of the device nothing on it can be used."""
    return BatchFailure(plan_id=plan_id, error=type(error).__name__, instance_lost="CUDA error" in str(error))


def _scrub(store: StateStore, slot: int) -> bool:
    store.initialise((slot,))
    clean = store.is_clean(slot)
    if not clean:
        logger.error("slot %d is not clean after initialisation and stays in quarantine", slot)
    return clean


def _step(store: StateStore, plan: BatchPlan, step: Callable[[BatchPlan], Stepped]) -> Stepped:
    store.initialise([row.slot for row in plan.rows if row.start])
    stepped = step(plan)
    assert len(stepped.rows) == len(plan.rows), "an instance answers every row"
    rows = list(stepped.rows)
    for index, words in store.faults([row.slot for row in plan.rows]).items():
        rows[index] = RowResult(error=words)
    store.release([row.slot for row in plan.rows if row.end])
    return Stepped(rows=tuple(rows), counters=stepped.counters)
