"""What the demonstration shows, on a terminal."""

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clients.demo.outcome import LEAST_GAP_POINTS, Case, Cell, CellKey, Outcome, Verdict
from clients.demo.settings import DemoConfig
from clients.demo.tick_story import WRONG, Passage, passages
from clients.demo.words_apart import Mark, marked

MOST_DIFFERENCES: Final = 5
MOST_PASSAGES: Final = 12


def print_table(console: Console, outcome: Outcome) -> None:
    """WER of the live text by length, scheduler and load; behind it the share of ticks that met a wrong state."""
    title = "Word error rate of the live text in %, no second pass"
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)  # 80 columns hold four loads
    table.add_column("ticks")
    table.add_column("words", justify="right")
    table.add_column("scheduler")
    for clients in outcome.loads:
        table.add_column(f"{clients} client{'s' * (clients > 1)}", justify="right")
    for length in outcome.lengths:
        for scheduler in outcome.schedulers:
            cells = [
                outcome.cell(CellKey(scheduler=scheduler, clients=clients, length=length)) for clients in outcome.loads
            ]
            is_first = scheduler is outcome.schedulers[0]
            words = str(cells[0].errors.reference_words)
            last = scheduler is outcome.schedulers[-1]
            table.add_row(
                length.value if is_first else "",
                words if is_first else "",
                scheduler.value,
                *(_figure(cell) for cell in cells),
                end_section=last,
            )
    console.print(table)
    console.print("in brackets: ticks that met the state of another moment, or none, in % of all", style="dim")


def print_case(console: Console, case: Case) -> None:
    """One utterance side by side, and the timeline that explains it."""
    wrong, right = case.dynamic, case.sequence
    console.rule(Text(f"{wrong.utterance.name}, {case.clients} clients", style="cyan"), align="left")
    reference = wrong.utterance.text
    console.print(Text.assemble(("said      ", "dim"), reference.lower()), soft_wrap=True)
    console.print(Text.assemble(("sequence  ", "dim"), _marked(reference, right.text)), soft_wrap=True)
    console.print(Text.assemble(("dynamic   ", "dim"), _marked(reference, wrong.text)), soft_wrap=True)
    table = Table(
        "ticks", "instance", "what happens there", "what the client has been told by then", title_justify="left"
    )
    found = passages(wrong.ticks)
    for passage in found[:MOST_PASSAGES]:
        table.add_row(
            passage.ticks, str(passage.instance), Text(passage.explanation, style=_style(passage)), passage.text
        )
    console.print(table)
    if len(found) > MOST_PASSAGES:
        console.print(f"… and {len(found) - MOST_PASSAGES} more; the page has all of them", style="dim")
    instances = sorted({told.instance for told in right.ticks})
    where = ", ".join(str(instance) for instance in instances)
    console.print(f"under the sequence batcher: all {len(right.ticks)} steps on instance {where}", style="green")


def print_fix(console: Console, before: DemoConfig, after: DemoConfig) -> None:
    """The one line."""
    console.rule(Text("the fix: one line of the configuration", style="cyan"), align="left")
    console.print(f"- {before.setting}", style="red", markup=False)
    console.print(f"+ {after.setting}", style="green", markup=False)


def print_verdict(console: Console, outcome: Outcome, verdict: Verdict) -> None:
    """Whether it shows what it should, and if not, why."""
    most, longest = max(outcome.loads), outcome.longest.value
    gap = f"{verdict.gap_points:+.1f} points of WER: dynamic against sequence, {longest} ticks, {most} clients"
    is_wide = verdict.gap_points >= LEAST_GAP_POINTS
    console.print(gap, style="bold" if is_wide else "bold red")
    if not is_wide:
        console.print(f"at least {LEAST_GAP_POINTS:.0f} points were expected", style="red")
    if not verdict.differences:
        console.print("sequence batcher, at every load: word for word what each utterance is alone", style="green")
    for difference in verdict.differences[:MOST_DIFFERENCES]:
        console.print(
            f"sequence batcher, {difference.clients} clients, {difference.name}: {difference.text!r},"
            f" alone {difference.alone!r}",
            style="red",
            markup=False,
            soft_wrap=True,
        )
    for failure in verdict.failures[:MOST_DIFFERENCES]:
        console.print(failure, style="red", markup=False, soft_wrap=True)


def _figure(cell: Cell) -> Text:
    if not cell.utterances:
        return Text("–", style="dim")
    share = cell.wrong_ticks / max(1, cell.ticks)
    style = "bold red" if share > 0.0 and cell.errors.percent >= LEAST_GAP_POINTS else ""
    return Text.assemble((f"{cell.errors.percent:.1f}", style), (f" ({100 * share:.0f})", "dim"))


def _marked(reference: str, heard: str) -> Text:
    """What was heard, its wrong words red. Missing ones are left out: not every terminal can strike through."""
    words = (word for word in marked(reference, heard) if word.mark is not Mark.MISSING)
    return Text(" ").join(Text(word.text, style="red" if word.mark is Mark.WRONG else "") for word in words)


def _style(passage: Passage) -> str:
    return "red" if passage.first.found in WRONG else "dim"
