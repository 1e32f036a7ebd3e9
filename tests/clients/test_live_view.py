"""Lines that change in place, on a terminal alone."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from clients.live_view import LiveView


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_has_the_lines_and_nothing_else_has(terminal: bool) -> None:
    out = io.StringIO()
    with LiveView(Console(file=out, force_terminal=terminal, width=40)) as view:
        view.draw((Text("one"), Text(""), Text("two")))
        view.console.print("for good")
        view.draw(())
    assert ("one\ntwo" in out.getvalue()) is terminal
    assert "for good\n" in out.getvalue()
    assert ("\x1b[?25h" in out.getvalue()) is terminal  # the cursor is given back
