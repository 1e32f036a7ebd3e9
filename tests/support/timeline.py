"""Timelines as text: what is done when, and what comes of it. A failing test shows the whole timeline as a diff.

One line is ``<time in ns> <verb> <arguments> -> <outcome>``; ``-> ok`` and ``-> -`` are left out. Blank lines and
lines of comment (``# …``) are ignored. Sequences are words, instances numbers.

    offer NAME [SAMPLES] [start] [finalize] [end]     ok, or the code of the refusal
    room NAME · free · deadline                       a number, a code, or ``-``
    touch NAME · cancel NAME · expire
    plan                                              ``#instance name[first:end] flags, … scrub slots``, or ``-``
    commit INSTANCE [error NAME …|fail|lost|unscrubbed]
    lose INSTANCE · late INSTANCE · restore INSTANCE
"""

from collections.abc import Callable

from server.batching.sequence_batcher import SequenceBatcherConfig
from server.effects import RowCompleted, SequenceEffect, SequenceEnded
from server.errors import MoorageError
from server.ids import SequenceId
from server.plan import BatchPlan, BatchRow
from tests.support.bench import Bench

_FLAGS = ("start", "flush", "end")


def assert_timeline(config: SequenceBatcherConfig, timeline: str) -> Bench:
    """Do what the timeline says and compare all that comes of it."""
    lines = [" ".join(line.split()) for line in timeline.splitlines()]
    expected = [line for line in lines if line and not line.startswith("# ")]
    bench = Bench(config)
    happened: list[str] = []
    for line in expected:
        try:
            happened.append(_play(bench, line.partition(" -> ")[0]))
        except Exception as error:
            error.add_note("\n".join(("timeline:", *happened, f"{line}    <- here")))
            raise
    assert "\n".join(happened) == "\n".join(expected)
    return bench


def _play(bench: Bench, done: str) -> str:
    time, verb, *arguments = done.split()
    bench.now_ns = int(time)
    outcome = _VERBS[verb](bench, arguments)
    bench.check()
    return done if outcome in ("ok", "-") else f"{done} -> {outcome}"


def _offer(bench: Bench, arguments: list[str]) -> str:
    name, *rest = arguments
    n_samples = sum(int(word) for word in rest if word.isdigit())
    return bench.offer(name, n_samples, start="start" in rest, finalize="finalize" in rest, end="end" in rest)


def _room(bench: Bench, arguments: list[str]) -> str:
    try:
        return str(bench.batcher.room(SequenceId(arguments[0])))
    except MoorageError as error:
        return error.code


def _deadline(bench: Bench, _: list[str]) -> str:
    deadline_ns = bench.batcher.next_deadline_ns()
    return "-" if deadline_ns is None else str(deadline_ns)


def _plan(bench: Bench, _: list[str]) -> str:
    plan = bench.plan()
    return "-" if plan is None else _plan_text(plan)


def _plan_text(plan: BatchPlan) -> str:
    parts = [_row_text(row) for row in plan.rows]
    if plan.scrub:
        parts.append(" ".join(("scrub", *(str(slot) for slot in plan.scrub))))
    return f"#{plan.instance} {', '.join(parts)}"


def _row_text(row: BatchRow) -> str:
    flags = "".join(f" {flag}" for flag in _FLAGS if getattr(row, flag))
    return f"{row.sequence_id}[{row.first_sample}:{row.first_sample + row.n_samples}]{flags}"


def _commit(bench: Bench, arguments: list[str]) -> str:
    instance, *outcome = arguments
    failure = next((word for word in outcome if word in ("fail", "lost")), None)
    errors = tuple(outcome[1:]) if "error" in outcome else ()
    return _effects(bench.commit(int(instance), errors=errors, failure=failure, scrub="unscrubbed" not in outcome))


def _effects(effects: list[SequenceEffect]) -> str:
    return ", ".join(_effect_text(effect) for effect in effects) or "-"


def _effect_text(effect: SequenceEffect) -> str:
    if isinstance(effect, RowCompleted):
        waited = f" after {effect.queue_ns}" if effect.queue_ns else ""
        return f"{effect.row.sequence_id} row{waited}"
    if isinstance(effect, SequenceEnded):
        return f"{effect.sequence_id} {effect.cause.value}"
    return f"{effect.sequence_id} {effect.error.code}"


def _late(bench: Bench, arguments: list[str]) -> str:
    bench.late(int(arguments[0]))
    return "-"


def _restore(bench: Bench, arguments: list[str]) -> str:
    bench.restore(int(arguments[0]))
    return "-"


_VERBS: dict[str, Callable[[Bench, list[str]], str]] = {
    "offer": _offer,
    "room": _room,
    "free": lambda bench, _: str(bench.batcher.free_slots()),
    "deadline": _deadline,
    "touch": lambda bench, arguments: bench.touch(arguments[0]),
    "cancel": lambda bench, arguments: _effects(bench.cancel(arguments[0])),
    "expire": lambda bench, _: ", ".join(bench.expire()) or "-",
    "plan": _plan,
    "commit": _commit,
    "lose": lambda bench, arguments: _effects(bench.lose(int(arguments[0]))),
    "late": _late,
    "restore": _restore,
}
