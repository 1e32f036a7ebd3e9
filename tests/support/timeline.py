"""Timelines as text: what is done when, and what comes of it. A failing test shows the whole timeline as a diff.

One line is ``<time in ns> <verb> <arguments> -> <outcome>``; ``-> ok`` and ``-> -`` are left out. Blank lines and
lines of comment (``# …``) are ignored. Sequences are words, instances numbers.

    offer NAME [SAMPLES] [start] [finalize] [end] [solo] [level N]    ok, or the code of the refusal
    turn NAME [VALUE] [start] [end] [shape N] [rows N] [level N]      the same
    room NAME · free · deadline                       a number, a code, or ``-``
    line NAME                                         its place in the backlog, or ``-``
    touch NAME · cancel NAME · expire                 what they bring; who was idle
    plan [without INSTANCE …]                         ``#instance name[first:end] flags, … over SLOTS, scrub SLOTS``, or
                                                      ``-``; name(value) for turns, x2 for rows of two ticks
    commit INSTANCE [newest] [error NAME …|fail|lost|unscrubbed]
    lose INSTANCE · late INSTANCE · restore INSTANCE
"""

from collections.abc import Callable

from server.batching.sequence_batcher import SequenceBatcherConfig
from server.effects import RowCompleted, SequenceEffect, SequenceEnded, SequencePlaced, SequenceQueued
from server.errors import MoorageError
from server.ids import SequenceId
from server.plan import BatchPlan
from tests.support.bench import Bench
from tests.support.played import play

_FLAGS = ("start", "flush", "end")


def assert_timeline(
    config: SequenceBatcherConfig, timeline: str, make_bench: Callable[[SequenceBatcherConfig], Bench] = Bench
) -> Bench:
    """Do what the timeline says and compare all that comes of it."""
    bench = make_bench(config)
    play(bench, _VERBS, timeline)
    return bench


def _offer(bench: Bench, arguments: list[str]) -> str:
    name, *rest = arguments
    level = _number(rest, "level")
    n_samples = sum(int(word) for word in rest if word.isdigit())
    return bench.offer(
        name,
        n_samples,
        start="start" in rest,
        finalize="finalize" in rest,
        end="end" in rest,
        solo="solo" in rest,
        priority=level or 0,
    )


def _turn(bench: Bench, arguments: list[str]) -> str:
    name, *rest = arguments
    level, size, n_rows = (_number(rest, word) for word in ("level", "shape", "rows"))
    value = sum(int(word) for word in rest if word.isdigit())
    return bench.turn(
        name,
        value,
        start="start" in rest,
        end="end" in rest,
        shape=(size or 1,),
        n_rows=n_rows or 1,
        priority=level or 0,
    )


def _number(words: list[str], name: str) -> int | None:
    """Take ``name N`` out of the words."""
    if name not in words:
        return None
    at = words.index(name)
    number = int(words[at + 1])
    del words[at : at + 2]
    return number


def _line(bench: Bench, arguments: list[str]) -> str:
    queued = bench.batcher.place_in_line(SequenceId(arguments[0]))
    return "-" if queued is None else _place_text(queued)


def _room(bench: Bench, arguments: list[str]) -> str:
    try:
        return str(bench.batcher.room(SequenceId(arguments[0])))
    except MoorageError as error:
        return error.code


def _deadline(bench: Bench, _: list[str]) -> str:
    deadline_ns = bench.batcher.next_deadline_ns()
    return "-" if deadline_ns is None else str(deadline_ns)


def _plan(bench: Bench, arguments: list[str]) -> str:
    plan = bench.plan(frozenset(int(word) for word in arguments[1:]))
    return "-" if plan is None else _plan_text(plan)


def _plan_text(plan: BatchPlan) -> str:
    parts = [_row_text(plan, index) for index in range(len(plan.rows))]
    if plan.span is not None:
        parts.append(f"over {plan.span.first}-{plan.span.first + plan.span.n_slots - 1}")
    if plan.scrub:
        parts.append(" ".join(("scrub", *(str(slot) for slot in plan.scrub))))
    return f"#{plan.instance} {', '.join(parts)}"


def _row_text(plan: BatchPlan, index: int) -> str:
    row = plan.rows[index]
    flags = "".join(f" {flag}" for flag in _FLAGS if getattr(row, flag))
    if plan.tensors:
        return f"{row.sequence_id}({int(plan.tensors[index].arrays['INPUT'].flat[0])}){flags}"
    ticks = f" x{row.n_ticks}" if row.n_ticks > 1 else ""
    return f"{row.sequence_id}[{row.first_sample}:{row.first_sample + row.n_samples}]{flags}{ticks}"


def _commit(bench: Bench, arguments: list[str]) -> str:
    instance, *outcome = arguments
    failure = next((word for word in outcome if word in ("fail", "lost")), None)
    errors = tuple(outcome[1:]) if "error" in outcome else ()
    return _effects(
        bench.commit(
            int(instance), errors=errors, failure=failure, scrub="unscrubbed" not in outcome, newest="newest" in outcome
        )
    )


def _expire(bench: Bench, _: list[str]) -> str:
    idle, effects = bench.expire()
    return ", ".join([*idle, *([_effects(effects)] if effects else [])]) or "-"


def _effects(effects: list[SequenceEffect]) -> str:
    return ", ".join(_effect_text(effect) for effect in effects) or "-"


def _effect_text(effect: SequenceEffect) -> str:
    if isinstance(effect, RowCompleted):
        waited = f" after {effect.queue_ns}" if effect.queue_ns else ""
        return f"{effect.row.sequence_id} row{waited}"
    if isinstance(effect, SequenceEnded):
        return f"{effect.sequence_id} {effect.cause.value}"
    if isinstance(effect, SequencePlaced):
        return f"{effect.sequence_id} placed on {effect.instance} after {effect.waited_ns}"
    if isinstance(effect, SequenceQueued):
        return f"{effect.sequence_id} {_place_text(effect)}"
    return f"{effect.sequence_id} {effect.error.code}"


def _place_text(queued: SequenceQueued) -> str:
    wait = "" if queued.expected_wait_ns is None else f" for {queued.expected_wait_ns}"
    return f"waits at {queued.position}{wait}"


def _late(bench: Bench, arguments: list[str]) -> str:
    bench.late(int(arguments[0]))
    return "-"


def _restore(bench: Bench, arguments: list[str]) -> str:
    bench.restore(int(arguments[0]))
    return "-"


_VERBS: dict[str, Callable[[Bench, list[str]], str]] = {
    "offer": _offer,
    "turn": _turn,
    "line": _line,
    "room": _room,
    "free": lambda bench, _: str(bench.batcher.free_slots()),
    "deadline": _deadline,
    "touch": lambda bench, arguments: bench.touch(arguments[0]),
    "cancel": lambda bench, arguments: _effects(bench.cancel(arguments[0])),
    "expire": _expire,
    "plan": _plan,
    "commit": _commit,
    "lose": lambda bench, arguments: _effects(bench.lose(int(arguments[0]))),
    "late": _late,
    "restore": _restore,
}
