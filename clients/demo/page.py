"""What the demonstration shows, as one HTML file that needs nothing else."""

from collections.abc import Iterable
from html import escape
from typing import Final

from clients.demo.outcome import LEAST_GAP_POINTS, Case, Cell, CellKey, Outcome, Verdict
from clients.demo.playing import Played
from clients.demo.settings import DemoConfig
from clients.demo.tick_story import WRONG, Finding, Found, findings, passages
from clients.demo.words_apart import marked

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
td.figure { text-align: right; font-variant-numeric: tabular-nums; }
.dim { color: #6b6b6b; } .loud { color: #b3131a; font-weight: 600; }
.wrong { color: #b3131a; } .missing { color: #8a8a8a; text-decoration: line-through; }
.strip { display: flex; flex-wrap: wrap; gap: 2px; margin: .3rem 0; }
.tick { min-width: 1.7rem; padding: .1rem .15rem; text-align: center; font-size: .75rem; border-radius: 3px;
  border: 2px solid transparent; }
.i0 { background: #cfe3f5; } .i1 { background: #f7dfb8; } .i2 { background: #d9ead3; } .i3 { background: #e6d5ef; }
.fresh { border-color: #b3131a; } .stale { border-color: #b3131a; border-style: dashed; }
pre { background: #f5f5f5; padding: .7rem 1rem; overflow-x: auto; }
.minus { background: #fbdcdc; } .plus { background: #d8f1dd; }
svg { max-width: 100%; height: auto; }
"""
_INSTANCE_COLOURS: Final = 4


def page(outcome: Outcome, verdict: Verdict, configs: tuple[DemoConfig, DemoConfig], chart_svg: str | None) -> str:
    """The whole file.

    Args:
        outcome: What was played.
        verdict: What it shows.
        configs: The wrong one and the right one.
        chart_svg: An ``<svg>`` element; None: there is none.
    """
    parts = [
        "<h1>A mid-utterance reset, and the line that ends it</h1>",
        f"<p>{_summary(outcome, verdict)}</p>",
        chart_svg or '<p class="dim">No picture: matplotlib is not installed (the extra "demo").</p>',
        _table(outcome),
        *(_case(case) for case in outcome.cases()),
        _fix(*configs),
        _how(),
    ]
    title = "Moorage: the mid-utterance reset"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>{body}</body></html>\n'


def _summary(outcome: Outcome, verdict: Verdict) -> str:
    most, longest = max(outcome.loads), outcome.longest.value
    gap = (
        f"The live text of utterances of {longest} ticks, {most} clients at once: the dynamic batcher lies "
        f"<b>{verdict.gap_points:.1f} points of WER</b> above the sequence batcher, on the same model and audio."
    )
    if verdict.differences or verdict.failures:
        n = len(verdict.differences) + len(verdict.failures)
        return f'{gap} <span class="loud">{n} results are not as they should be.</span>'
    return f"{gap} Under the sequence batcher every text is, at every load, word for word that of the utterance alone."


def _table(outcome: Outcome) -> str:
    loads = "".join(f"<th>{clients} client{'s' * (clients > 1)}</th>" for clients in outcome.loads)
    rows = []
    for length in outcome.lengths:
        for scheduler in outcome.schedulers:
            keys = [CellKey(scheduler=scheduler, clients=clients, length=length) for clients in outcome.loads]
            figures = "".join(_figure(outcome.cell(key)) for key in keys)
            rows.append(f"<tr><td>{length.value}</td><td>{scheduler.value}</td>{figures}</tr>")
    note = "In brackets: ticks that met the state of another moment, or none, in parts of all ticks."
    return (
        "<h2>Word error rate of the live text, no second pass</h2>"
        f"<table><tr><th>ticks</th><th>scheduler</th>{loads}</tr>{''.join(rows)}</table>"
        f'<p class="dim">{note}</p>'
    )


def _figure(cell: Cell) -> str:
    if not cell.utterances:
        return '<td class="figure dim">–</td>'
    share = cell.wrong_ticks / max(1, cell.ticks)
    loud = " loud" if share > 0.0 and cell.errors.percent >= LEAST_GAP_POINTS else ""
    wrong = f'<span class="dim">({100 * share:.0f} %)</span>'
    return f'<td class="figure{loud}">{cell.errors.percent:.1f} % {wrong}</td>'


def _case(case: Case) -> str:
    wrong, right, clients = case.dynamic, case.sequence, case.clients
    reference = wrong.utterance.text
    texts = "".join(
        f"<tr><th>{name}</th><td>{text}</td></tr>"
        for name, text in (
            ("said", escape(reference.lower())),
            ("sequence", _marked(reference, right.text)),
            ("dynamic", _marked(reference, wrong.text)),
        )
    )
    pieces = "".join(
        f"<tr><td>{escape(piece.ticks)}</td><td>{piece.instance}</td>"
        f'<td class="{"wrong" if piece.first.found in WRONG else "dim"}">{escape(piece.explanation)}</td>'
        f"<td>{escape(piece.text)}</td></tr>"
        for piece in passages(wrong.ticks)
    )
    return (
        f"<h2>One of them: {escape(wrong.utterance.name)}, {clients} clients</h2><table>{texts}</table>"
        "<p>Every box is a tick, its colour the instance that it ran on. A red frame: that instance had never heard of "
        "the sequence; dashed: it had, and missed what came since.</p>"
        f"<p>sequence</p>{_strip(right)}<p>dynamic</p>{_strip(wrong)}"
        "<table><tr><th>ticks</th><th>instance</th><th>what happens there</th>"
        f"<th>what the client has been told by then</th></tr>{pieces}</table>"
    )


def _marked(reference: str, heard: str) -> str:
    return " ".join(f'<span class="{word.mark.value}">{escape(word.text)}</span>' for word in marked(reference, heard))


def _strip(played: Played) -> str:
    return f'<div class="strip">{"".join(_boxes(findings(played.ticks)))}</div>'


def _boxes(found: Iterable[Finding]) -> Iterable[str]:
    for finding in found:
        told = finding.told
        name = "end" if told.is_flush else str(told.tick)
        frame = f" {finding.found.value}" if finding.found in WRONG else ""
        words = {Found.FRESH: ", never heard of it", Found.STALE: f", last heard tick {finding.heard_until}"}
        title = f"{name}: instance {told.instance}, batch of {told.batch_size}{words.get(finding.found, '')}"
        colour = told.instance % _INSTANCE_COLOURS
        yield f'<span class="tick i{colour}{frame}" title="{escape(title)}">{name}</span>'


def _fix(before: DemoConfig, after: DemoConfig) -> str:
    lines = []
    for line in before.text.splitlines():
        if line == before.line:
            lines.append(f'<span class="minus">- {escape(before.line)}</span>')
            lines.append(f'<span class="plus">+ {escape(after.line)}</span>')
        else:
            lines.append(f"  {escape(line)}")
    return "<h2>The fix: one line of the configuration</h2><pre>" + "\n".join(lines) + "</pre>"


def _how() -> str:
    return (
        "<h2>How it was played</h2><p>The clients are a closed loop: each sends the next tick when the one before was "
        "answered, so that order is kept and only routing and load differ. Under the dynamic batcher every tick is a "
        "request that may join any batch on any idle instance. Each instance keeps a state for every sequence that it "
        "has heard of, as a stateful model does, and answers from it. No instance returns an error.</p>"
    )
