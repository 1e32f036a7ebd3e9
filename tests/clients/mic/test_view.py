"""What ``moorage mic`` shows on a terminal, and elsewhere."""

import io

from rich.console import Console

from clients.connection import ConnectionFailed, Refused
from clients.messages import Results
from clients.mic.level import Level
from clients.mic.view import MicView
from tests.support.results import results


def result(text: str, *, is_final: bool = False, committed_words: int = 1) -> Results:
    return Results.model_validate_json(results(text, is_final=is_final, committed_words=committed_words))


def level(*, rms_db: float = -30.0, is_clipping: bool = False, mute_s: float = 0.0) -> Level:
    return Level(rms_db=rms_db, is_clipping=is_clipping, heard_s=65.2, mute_s=mute_s)


class Screen:
    """A view and what went to its two streams."""

    def __init__(self, *, terminal: bool) -> None:
        self._out, self._errors = io.StringIO(), io.StringIO()
        console = Console(
            file=self._out, force_terminal=terminal, width=100, color_system="standard" if terminal else None
        )
        self.view = MicView(console, Console(file=self._errors, width=100))

    @property
    def out(self) -> str:
        return self._out.getvalue()

    @property
    def errors(self) -> str:
        return self._errors.getvalue()


def test_elsewhere_finals_are_lines_and_notes_go_to_stderr() -> None:
    screen = Screen(terminal=False)
    with screen.view as view:
        view.listening("Yeti", 48_000)
        view.level(level(), lost_s=0.0, overflows=0)
        view.show(result("fix chang"))
        view.show(result("Fixed changes.", is_final=True))
        view.show(result("", is_final=True))
        view.finishing()
        view.summary(lost_s=0.5, overflows=2)
    assert screen.out == "Fixed changes.\n"
    assert screen.errors == (
        "listening to Yeti, 48000 samples a second; Ctrl-C ends\n"
        "0.5 s of audio were not sent: the service or the network was too slow\n"
        "the device lost audio 2 times: this machine was too busy\n"
    )


def test_a_terminal_has_committed_words_plain_the_draft_dim_and_the_level() -> None:
    screen = Screen(terminal=True)
    with screen.view as view:
        view.level(level(), lost_s=0.0, overflows=0)
        view.show(result("fix chang"))
        assert "fix\x1b[2m chang\x1b[0m" in screen.out
        assert "\x1b[32m████████████············\x1b[0m  -30 dB  1:05" in screen.out
        view.show(result("draft alone", committed_words=0))
        assert "\x1b[2mdraft alone\x1b[0m" in screen.out
        view.show(result("Fixed.", is_final=True))
        view.level(level(is_clipping=True), lost_s=1.25, overflows=3)
        assert "too loud" in screen.out
        assert "1.2 s not sent" in screen.out
        assert "3 overflows of the device" in screen.out
        view.finishing()
        assert "Ctrl-C again ends at once" in screen.out
    assert "Fixed." in screen.out
    assert screen.errors == ""


def test_text_is_not_taken_for_marks_of_the_terminal() -> None:
    screen = Screen(terminal=False)
    with screen.view as view:
        view.show(result("a [bold] word", is_final=True))
    assert screen.out == "a [bold] word\n"


def test_an_utterance_that_was_cut_off_stands_marked() -> None:
    screen = Screen(terminal=False)
    with screen.view as view:
        view.cut_off()
        view.show(result("half a sent"))
        view.cut_off()
        view.cut_off()
    assert screen.out == "half a sent …\n"


def test_waiting_is_told_once_for_each_reason() -> None:
    screen = Screen(terminal=False)
    busy = Refused("refused with 503: every slot is taken; try again in 1 s", status=503, reason="every slot is taken")
    with screen.view as view:
        view.wait(busy, 1.0)
        view.wait(busy, 1.0)
        view.listening("Yeti", 8_000)
        view.wait(ConnectionFailed("the connection was lost"), 2.0)
        view.listening("Yeti", 8_000)
        view.wait(ConnectionFailed("the connection was lost"), 2.0)
    assert screen.errors.splitlines() == [
        "every slot is taken; asking again",
        "listening to Yeti, 8000 samples a second; Ctrl-C ends",
        "the connection was lost; asking again",
        "listening again to Yeti, 8000 samples a second; Ctrl-C ends",
        "the connection was lost; asking again",
    ]


def test_nothing_but_silence_is_told_once() -> None:
    screen = Screen(terminal=False)
    with screen.view as view:
        view.listening("Yeti", 8_000)
        for mute_s in (2.9, 3.0, 3.1):
            view.level(level(mute_s=mute_s), lost_s=0.0, overflows=0)
    assert screen.errors.count("Yeti gives nothing but silence") == 1
