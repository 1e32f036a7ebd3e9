"""Which of an instance's ready rows run next, and from when on: order, company, patience. Pure functions.

The most urgent row decides: it is in the next step, and the others are there if they can go with it (``solo``, equal
shapes, a range of slots) and there is room. So a row that cannot go with it waits until it is the most urgent itself,
and none waits without bound.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from server.batching.sequence import Sequence
from server.batching.sequence_config import SequenceBatcherConfig, Strategy
from server.batching.step_times import StepTimes
from server.batching.turn_queue import ShapeKey, TurnQueue
from server.ids import SlotIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The rows that may share the next step, and how long it waits for more."""

    sequences: tuple[Sequence, ...]
    """The most urgent first, or ascending by slot."""
    n_at_once: int
    """So many of them go without waiting; 0: they wait."""
    until_ns: int | None
    """All of them go from then on; None: they do not wait."""

    @property
    def due_at_ns(self) -> int:
        """From when on the step is worth running; may lie in the past."""
        if self.until_ns is not None and not self.n_at_once:
            return self.until_ns
        return min(each.ready_at_ns for each in self.sequences)

    def taken_at(self, now_ns: int) -> tuple[Sequence, ...]:
        """What a step that is formed now takes."""
        is_over = self.until_ns is not None and now_ns >= self.until_ns
        return self.sequences if is_over or not self.n_at_once else self.sequences[: self.n_at_once]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What there is to choose from."""

    ready: Mapping[SlotIndex, Sequence]
    """By slot, in the order in which they became ready; not empty."""
    n_silent: int
    """Tenants that may still become ready for this step."""
    n_slots: int
    n_steps: int
    """Steps that the instance has begun."""


def next_step(situation: Situation, config: SequenceBatcherConfig, step_times: StepTimes) -> NextStep:
    """Choose the rows of the next step."""
    chosen = _company(_line(situation, config), config)
    n_at_once = _at_once(chosen, situation, config)
    return NextStep(sequences=chosen, n_at_once=n_at_once, until_ns=_patient_until_ns(chosen, config, step_times))


def deadline_ns(sequence: Sequence, config: SequenceBatcherConfig) -> int | None:
    """When the answer to the sequence's next row is due; None: at no certain time."""
    head = sequence.queue.head
    assert head is not None, "a ready sequence has a portion"
    allowed_ns = config.flush_deadline_ns if head.is_flush else config.deadline_ns
    return head.ready_at_ns + allowed_ns if allowed_ns else None


def _patient_until_ns(chosen: tuple[Sequence, ...], config: SequenceBatcherConfig, step_times: StepTimes) -> int | None:
    """A step waits for company for the longest delay of its oldest row, but begins in time for every deadline."""
    if not config.max_delay_ns:
        return None
    until_ns = min(each.ready_at_ns for each in chosen) + config.max_delay_ns
    deadlines = [at_ns for each in chosen if (at_ns := deadline_ns(each, config)) is not None]
    if deadlines:
        until_ns = min(until_ns, min(deadlines) - (step_times.expected_ns(len(chosen)) or 0))
    return until_ns


def _line(situation: Situation, config: SequenceBatcherConfig) -> Iterable[Sequence]:
    """The ready ones, the most urgent first: those that were passed over for a whole round, then by deadline."""
    if not config.has_deadlines:
        return situation.ready.values()
    round_steps = -(-situation.n_slots // config.max_batch)

    def urgency(sequence: Sequence) -> tuple[bool, bool, int]:
        if situation.n_steps - sequence.ready_step >= round_steps:
            return (False, False, 0)
        due_ns = deadline_ns(sequence, config)
        return (True, due_ns is None, due_ns or 0)

    return sorted(situation.ready.values(), key=urgency)


def _company(line: Iterable[Sequence], config: SequenceBatcherConfig) -> tuple[Sequence, ...]:
    leader = next(iter(line))
    if leader.solo:
        return (leader,)
    fitting = (each for each in line if not each.solo)
    if config.takes_turns:
        shape_key = _shape_key(leader)
        fitting = (each for each in fitting if _shape_key(each) == shape_key)
    if config.strategy is Strategy.DIRECT:
        return _range_with(leader, fitting, config.max_batch)
    return tuple(islice(fitting, config.max_batch))


def _shape_key(sequence: Sequence) -> ShapeKey:
    assert isinstance(sequence.queue, TurnQueue), "a sequence of turns"
    head = sequence.queue.head
    assert head is not None, "a ready sequence has a turn"
    return head.shape_key


def _range_with(leader: Sequence, fitting: Iterable[Sequence], max_slots: int) -> tuple[Sequence, ...]:
    """Those in the fullest range of ``max_slots`` slots with the leader in it; of equals the shortest, then the lowest.

    Ascending by slot.
    """
    at = leader.seat.lease.slot
    near = {each.seat.lease.slot: each for each in fitting if abs(each.seat.lease.slot - at) < max_slots}
    slots = sorted(near)
    ranges = []
    for first, low in enumerate(slots[: bisect_right(slots, at)]):
        end = bisect_left(slots, low + max_slots)
        ranges.append((first - end, slots[end - 1] - low, first, end))
    _, _, first, end = min(ranges)
    return tuple(near[slot] for slot in slots[first:end])


def _at_once(chosen: tuple[Sequence, ...], situation: Situation, config: SequenceBatcherConfig) -> int:
    """How many go without waiting: a preferred size, or all, where waiting brings nobody or keeps others waiting."""
    n_rows = len(chosen)
    preferred = max((size for size in config.preferred_sizes if size <= n_rows), default=0)
    if preferred and not chosen[0].solo:
        return preferred
    nobody_can_join = n_rows >= config.max_batch or not situation.n_silent or chosen[0].solo
    keeps_others = n_rows < len(situation.ready)
    share = config.min_slot_utilisation
    is_filled = bool(share) and n_rows >= share * situation.n_slots
    return n_rows if not config.max_delay_ns or nobody_can_join or keeps_others or is_filled else 0
