"""The figures of a run as tables for people (rich), for documents (Markdown) and for programs (JSON)."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from clients.bench.figures import BenchFigures, CaseFigures, MachineFigures, Spread, Trial, Usage

NONE = "–"
TARGET = 0.6
"""First target: streams served over streams bare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def print_rich(console: Console, figures: BenchFigures) -> None:
    """For a terminal."""
    for line in facts(figures):
        console.print(line, markup=False, soft_wrap=True)
    for sheet in sheets(figures):
        table = Table(title=sheet.title, title_justify="left", header_style="bold", title_style="bold")
        for index, column in enumerate(sheet.columns):
            table.add_column(column, justify="right" if index else "left")
        for row in sheet.rows:
            table.add_row(*row)
        console.print()
        console.print(table)
    for case in figures.cases:
        for line in remarks(case):
            console.print(line, style="yellow", markup=False, soft_wrap=True)


def to_markdown(figures: BenchFigures) -> str:
    """To paste into a document."""
    lines = [f"- {line}" for line in facts(figures)]
    for sheet in sheets(figures):
        rule = "|" + "|".join("---" if index == 0 else "---:" for index in range(len(sheet.columns))) + "|"
        lines += ["", f"**{sheet.title}**", "", _row(sheet.columns), rule, *map(_row, sheet.rows)]
    notes = [line for case in figures.cases for line in remarks(case)]
    if notes:
        lines += ["", *(f"- {line}" for line in notes)]
    return "\n".join(lines)


def to_json(figures: BenchFigures) -> str:
    """Everything, with the ratio of each case."""
    tree = dataclasses.asdict(figures)
    for case, found in zip(tree["cases"], figures.cases, strict=True):
        case["bare_streams"], case["ratio"] = found.bare_streams, found.ratio
    return json.dumps(tree, indent=2)


def facts(figures: BenchFigures) -> list[str]:
    """Where and how it ran."""
    lines = [f"machine: {_machine(figures.machine)}", f"speech: {figures.speech}"]
    lines.append(f"trials: {figures.seconds:g} s measured, audio in messages of {figures.chunk_ms} ms, 1x real time")
    for case in figures.cases:
        if case.instances:
            lines.append(
                f"{case.title}: {case.instances} instances of {case.threads} threads, ticks of {case.tick_ms:g} ms, "
                f"{case.slot_bytes / 2**20:.2g} MiB of state a stream"
            )
    return lines


def sheets(figures: BenchFigures) -> Iterator[Sheet]:
    """All tables that have a row."""
    found = (_streams(figures.cases), _latencies(figures.cases), _costs(figures.cases), _bare(figures.cases))
    return (sheet for sheet in found if sheet.rows)


def remarks(case: CaseFigures) -> Iterator[str]:
    """What a reader must know of a case."""
    if case.held is None:
        yield f"{case.title}: no trial was held{_why_not(case)}"
    if case.is_capped:
        yield f"{case.title}: no more streams were tried; more may be held"
    trial = _decisive(case)
    if trial is None:
        return
    if (late := trial.late_send) is not None and late.p99_ms > case.tick_ms / 10:
        yield f"{case.title}: the load client itself was {late.p99_ms:.0f} ms late at p99, which is part of the figures"
    if (other := trial.usage.other_cores) > 0.1:
        yield f"{case.title}: other processes used {other:.1f} cores meanwhile: the figures are too low"


def _streams(cases: Sequence[CaseFigures]) -> Sheet:
    rows = []
    for case in cases:
        bare = case.bare_streams
        rows.append(
            (
                case.title,
                NONE if bare is None else f"{bare:.1f}",
                _held(case),
                NONE if case.ratio is None else f"{100 * case.ratio:.0f} %",
                NONE if case.ratio is None else ("met" if case.ratio >= TARGET else "missed"),
            )
        )
    return Sheet(
        title="Streams in real time",
        columns=("case", "bare loop", "served", "served / bare", f"target {TARGET:.0%}"),
        rows=tuple(rows),
    )


def _latencies(cases: Sequence[CaseFigures]) -> Sheet:
    rows = [
        (
            case.title,
            str(trial.streams),
            *(_spread(each) for each in (trial.step, trial.first_partial, trial.commit, trial.final)),
            NONE if trial.lag is None else f"{trial.lag.p99_ms:.0f}",
        )
        for case in cases
        for trial in _shown(case)
    ]
    return Sheet(
        title="Latency in ms: p50 / p95 / p99",
        columns=("case", "streams", "step", "word, first partial", "word, commit", "final", "real-time lag, p99"),
        rows=tuple(rows),
    )


def _costs(cases: Sequence[CaseFigures]) -> Sheet:
    rows = []
    for case in cases:
        for trial in _shown(case) or _measured(case)[-1:]:
            usage = trial.usage
            if not case.instances:
                continue
            cores = (usage.service_cores, usage.worker_cores, usage.client_cores, usage.other_cores)
            growth = trial.growth_bytes / trial.streams / 2**20
            rows.append((case.title, str(trial.streams), *(f"{each:.2f}" for each in cores), f"{growth:.2f}"))
    return Sheet(
        title="Cores in use, and memory",
        columns=(
            "case",
            "streams",
            "service",
            "its workers",
            "client",
            "others",
            "MiB a stream beside its state",
        ),
        rows=tuple(rows),
    )


def _bare(cases: Sequence[CaseFigures]) -> Sheet:
    batches = sorted({point.batch for case in cases for each in case.bare for point in each.points})
    rows = []
    for case in cases:
        if case.bare:
            times = {point.batch: f"{point.step_ms:.1f}" for point in case.bare[-1].points}
            rows.append((case.title, *(times.get(batch, NONE) for batch in batches)))
    return Sheet(
        title="Bare loop: mean step in ms, by rows of each instance",
        columns=("case", *map(str, batches)),
        rows=tuple(rows),
    )


def _held(case: CaseFigures) -> str:
    """Streams, with a sign where the truth lies beyond them."""
    if case.held is not None:
        return f"≥ {case.held.streams}" if case.is_capped else str(case.held.streams)
    fewest = min((trial.streams for trial in case.trials), default=1)
    return f"< {fewest}" if fewest > 1 else "0"


def _shown(case: CaseFigures) -> list[Trial]:
    return [trial for trial in (case.light_load, case.held) if trial is not None]


def _why_not(case: CaseFigures) -> str:
    """Why no trial was held, as far as it is known, to put behind a sentence."""
    if case.trials and case.trials[-1].failure:
        return f": {case.trials[-1].failure}"
    fewest = min((trial.streams for trial in case.trials), default=0)
    return "" if fewest == 1 else "; fewer streams were not tried: the time was used up"


def _decisive(case: CaseFigures) -> Trial | None:
    """The trial that the case's figure rests on: the one that was held, else the last that ran to its end."""
    return case.held or next(reversed(_measured(case)), None)


def _measured(case: CaseFigures) -> list[Trial]:
    """Trials during which the machine was looked at, to the end."""
    return [trial for trial in case.trials if trial.usage != Usage()]


def _spread(spread: Spread | None) -> str:
    return NONE if spread is None else f"{spread.p50_ms:.0f} / {spread.p95_ms:.0f} / {spread.p99_ms:.0f}"


def _machine(machine: MachineFigures) -> str:
    devices = f", {', '.join(machine.accelerators)}" if machine.accelerators else ", no GPU"
    return (
        f"{machine.processor}, {machine.cores} cores, {machine.memory_gib:.0f} GiB{devices}, {machine.system}, "
        f"Python {machine.python}, torch {machine.torch}"
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
