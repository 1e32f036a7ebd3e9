"""What is told of the outcome: on a terminal, as a page, as a picture."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from clients.demo import chart, files
from clients.demo.files import write_files
from clients.demo.outcome import Outcome, SchedulerName
from clients.demo.page import page
from clients.demo.report import print_case, print_fix, print_table, print_verdict
from clients.demo.settings import demo_config
from server.errors import BadParameter
from tests.clients.demo.made import RIGHT, WRONG, outcome, played, utterance

CONFIGS = (demo_config(SchedulerName.DYNAMIC), demo_config(SchedulerName.SEQUENCE))


def console() -> Console:
    return Console(file=io.StringIO(), width=160, highlight=False)


def told(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


class TestTerminal:
    def test_table(self) -> None:
        screen = console()
        print_table(screen, outcome())
        text = told(screen)
        assert re.search(r"1–4\s.*1 │ dynamic\s+│\s+0\.0 \(0\) │\s+0\.0 \(0\)", text)
        assert re.search(r"31\+\s.*10 │ dynamic\s+│\s+0\.0 \(0\) │\s+50\.0 \(60\)", text)
        assert re.search(r"│ sequence\s+│\s+0\.0 \(0\) │\s+0\.0 \(0\)", text)

    def test_no_cell_wraps_on_a_terminal_of_80_columns(self) -> None:
        """Four loads, more errors than words, nearly every tick wrong."""
        long = utterance(text=" ".join(["one"] * 135))
        worst = played("two " * 182, "01" * 20, of=long)
        right = played(long.text, of=long)
        runs = {
            (scheduler, clients): [worst if scheduler is SchedulerName.DYNAMIC and clients > 1 else right]
            for scheduler in SchedulerName
            for clients in (1, 2, 4, 8)
        }
        screen = Console(file=io.StringIO(), width=80, highlight=False)
        print_table(screen, Outcome(played=runs))
        lines = told(screen).splitlines()
        (row,) = (line for line in lines if "dynamic" in line)
        assert row.count("134.8 (98)") == 3
        (row,) = (line for line in lines if "sequence" in line)
        assert row.count("0.0 (0)") == 4
        assert any("1 client " in line and "8 clients" in line for line in lines)

    def test_wrong_case(self) -> None:
        screen = console()
        (case,) = outcome().cases()
        print_case(screen, case)
        text = told(screen)
        assert "sequence  " + RIGHT in text
        assert "dynamic   " + WRONG in text
        assert "reset: this instance never heard ticks 1–2, it starts from nothing" in text
        assert "stale: this instance last heard tick 2, tick 3 went elsewhere" in text
        assert "all 3 steps on instance 0" in text

    def test_a_long_story_is_cut(self) -> None:
        screen = console()
        (case,) = outcome().cases()
        print_case(screen, replace(case, dynamic=played(WRONG, "01" * 10)))
        assert "│ 12 " in told(screen)
        assert "│ 13 " not in told(screen)
        assert "… and 8 more; the page has all of them" in told(screen)

    def test_fix(self) -> None:
        screen = console()
        print_fix(screen, *CONFIGS)
        assert '- scheduler = "dynamic"\n+ scheduler = "sequence"\n' in told(screen)

    def test_verdict_that_holds(self) -> None:
        screen, found = console(), outcome()
        print_verdict(screen, found, found.verdict())
        assert "+50.0 points of WER: dynamic against sequence, 31+ ticks, 8 clients" in told(screen)
        assert "word for word what each utterance is alone" in told(screen)

    @pytest.mark.parametrize(
        ("found", "words"),
        [
            (outcome(dynamic_text=RIGHT), "at least 10 points were expected"),
            (outcome(sequence_text="one"), "sequence batcher, 8 clients, long.flac: 'one', alone 'one two"),
            (outcome(failure="the instance died"), "long.flac, dynamic, 8 clients: the instance died"),
        ],
    )
    def test_verdict_that_does_not(self, found: Outcome, words: str) -> None:
        screen = console()
        print_verdict(screen, found, found.verdict())
        assert words in told(screen)


class Tags(HTMLParser):
    """Everything that a page opens and closes, and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value and not value.startswith("#"):
                self.fetched.append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


class TestPage:
    def test_it_is_whole_and_needs_nothing_else(self) -> None:
        found = outcome()
        drawn = chart.draw(found)
        assert drawn is not None
        tags = Tags()
        tags.feed(page(found, found.verdict(), CONFIGS, drawn.svg))
        tags.close()
        assert tags.open == []
        assert tags.fetched == []
        assert "50.0 points of WER" in tags.text
        assert '+ scheduler = "sequence"' in tags.text
        assert "reset: this instance never heard ticks 1–2" in tags.text

    def test_what_people_said_is_no_markup(self) -> None:
        found = outcome(dynamic_text="<script>alert(1)</script>")
        text = page(found, found.verdict(), CONFIGS, None)
        assert "<script" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text

    def test_faults_are_told(self) -> None:
        found = outcome(sequence_text="one")
        assert "1 results are not as they should be" in page(found, found.verdict(), CONFIGS, None)


class TestChart:
    def test_every_figure_is_in_the_picture(self) -> None:
        axes = chart.figure_of(outcome()).axes
        assert [panel.get_title() for panel in axes] == ["1–4 ticks", "31+ ticks"]
        assert all(list(panel.get_ylim()) == pytest.approx([0.0, 54.0]) for panel in axes)
        drawn = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in axes[1].get_lines()}
        assert drawn == {"dynamic batcher": [0.0, 50.0], "sequence batcher": [0.0, 0.0]}


class TestFiles:
    def test_all_of_them(self, tmp_path: Path) -> None:
        found = outcome()
        written = write_files(tmp_path / "new" / "folder", found, found.verdict(), CONFIGS)
        assert sorted(path.name for path in written) == ["dynamic.toml", "reset.html", "reset.png", "sequence.toml"]
        assert (tmp_path / "new/folder/reset.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert (tmp_path / "new/folder/dynamic.toml").read_text() == CONFIGS[0].text
        assert "<svg" in (tmp_path / "new/folder/reset.html").read_text(encoding="utf-8")

    def test_without_matplotlib(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "draw", lambda outcome: None)
        found = outcome()
        written = write_files(tmp_path, found, found.verdict(), CONFIGS)
        assert sorted(path.name for path in written) == ["dynamic.toml", "reset.html", "sequence.toml"]
        assert "matplotlib is not installed" in (tmp_path / "reset.html").read_text(encoding="utf-8")

    def test_a_folder_that_is_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "draw", lambda outcome: None)
        (tmp_path / "file").write_text("")
        found = outcome()
        with pytest.raises(BadParameter, match="cannot be written to"):
            write_files(tmp_path / "file", found, found.verdict(), CONFIGS)
