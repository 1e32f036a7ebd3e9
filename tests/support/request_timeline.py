"""Timelines of a dynamic batcher as text: what is done when, and what comes of it; as ``timeline`` for sequences.

One line is ``<time in ns> <verb> <arguments> -> <outcome>``; ``-> ok`` and ``-> -`` are left out. Requests are words,
instances numbers. ``offer a*6`` offers a1 … a6.

    offer NAME [rows=N] [length=N] [samples=N] [inputs=A,B] [level=N] [timeout=NS] [answer_by=NS] [early]
    confirm NAME · cancel NAME · expire · abandon · deadline
    plan                                              ``#instance name name …``
    commit INSTANCE [error NAME …|fail|lost|abandoned]
    lose INSTANCE · late INSTANCE · restore INSTANCE · block INSTANCE · admit INSTANCE
"""

from collections.abc import Callable
from typing import Any, Final

from server.batching.dynamic_batcher import DynamicBatcherConfig
from server.effects import RequestCancelled, RequestCompleted, RequestEffect
from tests.support.played import play
from tests.support.request_bench import RequestBench

_FIELDS: Final = {
    "rows": "n_rows",
    "length": "length",
    "samples": "n_samples",
    "level": "priority",
    "timeout": "timeout_ns",
    "answer_by": "deadline_ns",
}


def assert_request_timeline(config: DynamicBatcherConfig, timeline: str) -> RequestBench:
    """Do what the timeline says and compare all that comes of it."""
    bench = RequestBench(config)
    play(bench, _VERBS, timeline)
    return bench


def _offer(bench: RequestBench, arguments: list[str]) -> str:
    name, *rest = arguments
    fields: dict[str, Any] = {"is_early": True} if "early" in rest else {}
    for word in rest:
        key, _, value = word.partition("=")
        if key == "inputs":
            fields["inputs"] = tuple(value.split(","))
        elif value:
            fields[_FIELDS[key]] = int(value)
    stem, _, count = name.partition("*")
    names = [f"{stem}{number}" for number in range(1, int(count) + 1)] if count else [stem]
    outcomes = [bench.offer(each, **fields) for each in names]
    refused = [f"{each} {outcome}" for each, outcome in zip(names, outcomes, strict=True) if outcome != "ok"]
    return ", ".join(refused) or "ok" if count else outcomes[0]


def _confirm(bench: RequestBench, arguments: list[str]) -> str:
    bench.confirm(arguments[0])
    return "-"


def _plan(bench: RequestBench, _: list[str]) -> str:
    batch = bench.plan()
    return "-" if batch is None else " ".join((f"#{batch.instance}", *bench.names(batch)))


def _commit(bench: RequestBench, arguments: list[str]) -> str:
    instance, *outcome = arguments
    failure = next((word for word in outcome if word in ("fail", "lost", "abandoned")), None)
    errors = tuple(outcome[1:]) if "error" in outcome else ()
    return _told(bench, bench.commit(int(instance), errors=errors, failure=failure))


def _told(bench: RequestBench, effects: list[RequestEffect]) -> str:
    return ", ".join(_effect_text(bench, effect) for effect in effects) or "-"


def _effect_text(bench: RequestBench, effect: RequestEffect) -> str:
    name = bench.name(effect.request_id)
    if isinstance(effect, RequestCompleted):
        return f"{name} after {effect.queue_ns}" if effect.queue_ns else name
    return f"{name} cancelled" if isinstance(effect, RequestCancelled) else f"{name} {effect.error.code}"


def _deadline(bench: RequestBench, _: list[str]) -> str:
    deadline_ns = bench.deadline_ns()
    return "-" if deadline_ns is None else str(deadline_ns)


def _on_instance(verb: Callable[[RequestBench, int], object]) -> Callable[[RequestBench, list[str]], str]:
    def play(bench: RequestBench, arguments: list[str]) -> str:
        verb(bench, int(arguments[0]))
        return "-"

    return play


_VERBS: Final[dict[str, Callable[[RequestBench, list[str]], str]]] = {
    "offer": _offer,
    "confirm": _confirm,
    "cancel": lambda bench, arguments: _told(bench, bench.cancel(arguments[0])),
    "expire": lambda bench, _: _told(bench, bench.expire()),
    "abandon": lambda bench, _: " ".join(f"#{instance}" for instance in bench.abandon()) or "-",
    "deadline": _deadline,
    "plan": _plan,
    "commit": _commit,
    "lose": lambda bench, arguments: _told(bench, bench.lose(int(arguments[0]))),
    "late": lambda bench, arguments: _told(bench, bench.late(int(arguments[0]))),
    "restore": _on_instance(lambda bench, instance: bench.restore(instance)),
    "block": _on_instance(lambda bench, instance: bench.blocked.add(instance)),
    "admit": _on_instance(lambda bench, instance: bench.blocked.discard(instance)),
}
