"""What ``moorage replay`` shows: open utterances changing in place, finals above them, the report at the end."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clients.live_view import LiveView
from clients.messages import Results
from clients.replay.latency import Latencies, percentiles
from clients.replay.playback import Playback
from clients.word_error_rate import WordErrors

MAX_ROWS = 12
"""Streams shown at once."""


class ReplayView(LiveView):
    """Open utterances, one line a stream, in place; a console that is no terminal gets the finals alone."""

    def __init__(self, console: Console, streams: int) -> None:
        super().__init__(console)
        self._rows: list[Text] = [Text() for _ in range(streams)]

    def show(self, stream: int, path: Path, result: Results) -> None:
        """A result of a stream: a final is printed for good, an interim replaces the line before it."""
        name = (f"{path.name}  ", "cyan")
        if result.is_final:
            self._rows[stream] = Text()
            if result.transcript:
                stamp = (f"{result.start:7.2f} s  ", "dim")
                self.console.print(Text.assemble(name, stamp, result.transcript), soft_wrap=True)
        else:
            committed, draft = result.split()
            self._rows[stream] = Text.assemble(name, (committed, "bold"), (f" {draft}", "dim italic"))
        self._refresh()

    def fail(self, path: Path, why: str) -> None:
        """A file that could not be played to its end."""
        self.console.print(Text.assemble((f"{path}: ", "cyan"), (why, "red")), soft_wrap=True)

    def wait(self, path: Path, why: str) -> None:
        """A file that waits until the service takes it."""
        self.console.print(Text.assemble((f"{path.name}  ", "cyan"), (f"waits: {why}", "dim")), soft_wrap=True)

    def clear(self, stream: int) -> None:
        """A stream that plays nothing now."""
        self._rows[stream] = Text()
        self._refresh()

    def _refresh(self) -> None:
        open_rows = [row for row in self._rows if row.plain]
        hidden = len(open_rows) - MAX_ROWS
        more = Text(f"… and {hidden} more" if hidden > 0 else "", style="dim")
        self.draw((*open_rows[:MAX_ROWS], more))


def print_texts(console: Console, played: Sequence[Playback], references: Mapping[Path, str]) -> None:
    """The text of each file, with its reference; a file that was played several times and read differently shows so."""
    for path in dict.fromkeys(playback.path for playback in played):
        takes = [playback for playback in played if playback.path == path]
        console.rule(Text(path.name, style="cyan"), align="left")
        _print_variants(console, "final", [take.text for take in takes])
        _print_variants(console, "live", [take.live_text for take in takes])
        if path in references:
            console.print(Text.assemble(("truth  ", "dim"), references[path]), soft_wrap=True)


def _print_variants(console: Console, label: str, texts: Sequence[str]) -> None:
    variants = Counter(texts).most_common()
    for text, count in variants:
        times = f" ({count} of {len(texts)} times)" if len(variants) > 1 else ""
        console.print(Text.assemble((f"{label + times:6} ", "dim"), text), soft_wrap=True)


def print_word_errors(console: Console, final: WordErrors, live: WordErrors) -> None:
    """Word error rates over all files that have a reference."""
    table = Table(
        "text", "WER", "words", "substituted", "deleted", "inserted", title="Word errors", title_justify="left"
    )
    for label, errors in (("final", final), ("live", live)):
        counts = (errors.reference_words, errors.substitutions, errors.deletions, errors.insertions)
        table.add_row(label, f"{errors.percent:.2f} %", *map(str, counts))
    console.print(table)


def print_latencies(console: Console, latencies: Latencies) -> None:
    """The latency figures; those that need a reference are left out where there is none."""
    table = Table("latency", "p50", "p90", "p99", "of", title="Latency in ms", title_justify="left")
    for label, values, unit in (
        ("step latency", latencies.step_ms, "ticks"),
        ("word delay to the first partial", latencies.first_partial_ms, "words"),
        ("word delay to the commit", latencies.commit_ms, "words"),
        ("final delay, at an endpoint", latencies.final_ms, "utterances"),
        ("final delay, at the end of the stream", latencies.closing_final_ms, "utterances"),
    ):
        figures = percentiles(values)
        if figures is not None:
            ranks = (figures.p50, figures.p90, figures.p99)
            table.add_row(label, *(f"{value:.0f}" for value in ranks), f"{figures.count} {unit}")
    console.print(table)
    if latencies.ticks_without_result:
        console.print(f"{latencies.ticks_without_result} ticks had no result", style="red")


def print_left_out(console: Console, reasons: Sequence[str], n_played: int) -> None:
    """Why word and final delays do not count all files."""
    for reason, count in Counter(reasons).most_common():
        told = f"word and final delays leave out {count} of {n_played} played: {reason}"
        console.print(told, style="dim", soft_wrap=True)
