"""Lines at the bottom of a terminal that change in place."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text


class LiveView:
    """Within its context, a console that is a terminal has such lines; any other has none."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self, rows: Sequence[Text]) -> None:
        """The lines from now on; those without text are left out."""
        if self._live is not None:
            self._live.update(Group(*(row for row in rows if row.plain)), refresh=True)
