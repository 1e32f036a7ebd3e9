"""What ``moorage mic`` shows: finals that scroll up, below them the open utterance and the level, in place."""

from rich.console import Console
from rich.text import Text

from clients.connection import ConnectionFailed, Refused
from clients.live_view import LiveView
from clients.messages import Results
from clients.mic.level import Level, bar

CELLS = 24
MUTE_S = 3.0
"""Of nothing but zeros, after which the user is told."""


class MicView(LiveView):
    """On a terminal as above; elsewhere a line for each final on stdout, and notes on stderr."""

    def __init__(self, out: Console, errors: Console) -> None:
        super().__init__(out)
        self._notes = out if out.is_terminal else errors
        self._open = Text()
        self._meter = Text()
        self._name = ""
        self._told = ""
        self._has_told_mute = False

    def listening(self, name: str, sample_rate: int) -> None:
        """The service takes what is recorded."""
        again = " again" if self._name else ""
        self._name, self._told = name, ""
        self._note(f"listening{again} to {name}, {sample_rate} samples a second; Ctrl-C ends")

    def show(self, result: Results) -> None:
        """A final is printed for good, an interim replaces the one before it."""
        if result.is_final:
            self._open = Text()
            if result.transcript:
                self.console.print(Text(result.transcript), soft_wrap=True)
        else:
            committed, draft = result.split()
            self._open = Text.assemble(committed, (f" {draft}" if committed else draft, "dim"))
        self._refresh()

    def level(self, level: Level, *, lost_s: float, overflows: int) -> None:
        """A reading of the meter, and what was lost so far."""
        minutes, seconds = divmod(int(level.heard_s), 60)
        style = "red" if level.is_clipping else "green"
        self._meter = Text.assemble((bar(level, CELLS), style), f" {level.rms_db:4.0f} dB  {minutes}:{seconds:02}")
        for told in (
            "too loud" if level.is_clipping else "",
            f"{lost_s:.1f} s not sent" if lost_s else "",
            f"{overflows} overflows of the device" if overflows else "",
        ):
            self._meter.append(f"  {told}" if told else "", "red")
        if level.mute_s >= MUTE_S and not self._has_told_mute:
            self._has_told_mute = True
            self._note(f"{self._name} gives nothing but silence: is it muted, or this program not allowed to use it?")
        self._refresh()

    def finishing(self) -> None:
        """No more is recorded; the last answers are on their way."""
        self._meter = Text("finishing; Ctrl-C again ends at once", "dim")
        self._refresh()

    def wait(self, error: ConnectionFailed, pause_s: float) -> None:
        """The service will be asked again."""
        why = error.reason if isinstance(error, Refused) else str(error)
        if why != self._told:
            self._told = why
            self._note(f"{why}; asking again")
        self._meter = Text(f"asking again in {pause_s:.0f} s", "dim")
        self._refresh()

    def cut_off(self) -> None:
        """The open utterance will have no final: what was heard of it stands, marked."""
        if self._open.plain:
            self.console.print(Text(f"{self._open.plain} …", style="dim"), soft_wrap=True)
        self._open = Text()
        self._refresh()

    def summary(self, *, lost_s: float, overflows: int) -> None:
        """At the end: what is missing."""
        if lost_s:
            self._note(f"{lost_s:.1f} s of audio were not sent: the service or the network was too slow")
        if overflows:
            self._note(f"the device lost audio {overflows} times: this machine was too busy")

    def _note(self, text: str) -> None:
        self._notes.print(Text(text, style="yellow"), soft_wrap=True)

    def _refresh(self) -> None:
        self.draw((self._open, self._meter))
