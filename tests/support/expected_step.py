"""Which rows the next step of an instance must hold, and from when on, written from the contract alone."""

from dataclasses import dataclass

from server.batching.sequence_config import SequenceBatcherConfig, Strategy
from server.batching.step_times import StepTimes
from tests.support.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStep:
    """The step that would be formed now."""

    is_due: bool
    """Whether its rows run now; else they wait for company."""
    runs: list[Run]


def expected_step(
    able: list[Run], config: SequenceBatcherConfig, *, n_slots: int, n_silent: int, times: StepTimes, now_ns: int
) -> ExpectedStep:
    """``able`` are the runs with a row, in the order in which they became able; ``n_silent`` others may come yet."""
    line = _by_urgency(able, config, n_slots)
    company = _company(line, config)
    n_rows = len(company)
    preferred = [size for size in config.preferred_sizes if size <= n_rows]
    is_solo = line[0].solo
    if config.max_delay_ns:
        oldest_ns = min(_ready_at_ns(run, config) for run in company)
        begin_ns = [oldest_ns + config.max_delay_ns]
        begin_ns += [at_ns - (times.expected_ns(n_rows) or 0) for run in company if (at_ns := row_due_ns(run, config))]
        if now_ns >= min(begin_ns):
            return ExpectedStep(is_due=True, runs=company)
    if preferred and not is_solo:
        return ExpectedStep(is_due=True, runs=company[: max(preferred)])
    is_worth_it = (
        is_solo
        or not config.max_delay_ns
        or n_rows >= config.max_batch
        or n_rows < len(able)
        or not n_silent
        or 0 < config.min_slot_utilisation <= n_rows / n_slots
    )
    return ExpectedStep(is_due=is_worth_it, runs=company)


def most_passed_over(config: SequenceBatcherConfig, n_slots: int) -> int:
    """Steps of its instance that may go without a row that is ready."""
    round_steps = -(-n_slots // config.max_batch)
    if config.preferred_sizes:
        round_steps = -(-n_slots // min(config.preferred_sizes))
    if config.strategy is Strategy.DIRECT or config.takes_turns:
        round_steps = n_slots
    return 2 * round_steps if config.has_deadlines else round_steps - 1


def row_due_ns(run: Run, config: SequenceBatcherConfig) -> int | None:
    """When the answer to the run's next row is due; None: at no certain time."""
    row = run.next_row(config)
    assert row is not None
    allowed_ns = config.flush_deadline_ns if row.flush else config.deadline_ns
    return row.ready_at_ns + allowed_ns if allowed_ns else None


def _by_urgency(able: list[Run], config: SequenceBatcherConfig, n_slots: int) -> list[Run]:
    if not config.has_deadlines:
        return able
    round_steps = -(-n_slots // config.max_batch)
    overdue = [run for run in able if run.passed_over >= round_steps]
    others = [run for run in able if run.passed_over < round_steps]
    due = sorted((run for run in others if row_due_ns(run, config)), key=lambda run: row_due_ns(run, config) or 0)
    return overdue + due + [run for run in others if not row_due_ns(run, config)]


def _company(line: list[Run], config: SequenceBatcherConfig) -> list[Run]:
    leader = line[0]
    if leader.solo:
        return [leader]
    fitting = [run for run in line if not run.solo and _fits(run, leader, config)]
    if config.strategy is Strategy.OLDEST:
        return fitting[: config.max_batch]
    ranges = []
    for low in range(_slot(leader) - config.max_batch + 1, _slot(leader) + 1):
        inside = sorted((run for run in fitting if low <= _slot(run) < low + config.max_batch), key=_slot)
        width = _slot(inside[-1]) - _slot(inside[0])
        ranges.append((-len(inside), width, _slot(inside[0]), inside))
    return min(ranges, key=lambda each: each[:3])[3]


def _fits(run: Run, leader: Run, config: SequenceBatcherConfig) -> bool:
    row, other = run.next_row(config), leader.next_row(config)
    assert row is not None
    assert other is not None
    return "INPUT" in config.ragged or row.shape == other.shape


def _slot(run: Run) -> int:
    assert run.place is not None
    return run.place[0][1]


def _ready_at_ns(run: Run, config: SequenceBatcherConfig) -> int:
    row = run.next_row(config)
    assert row is not None
    return row.ready_at_ns
