"""Transcripts as text, JSON, SubRip and WebVTT."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.transcribe.transcript import FileRecord
from clients.transcribe.transcript_format import Format, file_text, format_named, joined_json, joined_line
from server.errors import BadParameter
from server.recordings.subtitle_files import srt, vtt
from server.recordings.subtitles import Cue


def record(*utterances: list[tuple[str, float, float]]) -> FileRecord:
    """Words with their times, by utterance."""
    texts = [" ".join(word for word, _, _ in words) for words in utterances]
    return {
        "file": "a.wav",
        "seconds": 60.0,
        "text": " ".join(filter(None, texts)),
        "live_text": "",
        "segments": [
            {
                "start": words[0][1] if words else 0.0,
                "end": words[-1][2] if words else 1.0,
                "text": text,
                "live_text": "hm",
                "words": [{"word": word, "start": start, "end": end, "confidence": 1.0} for word, start, end in words],
            }
            for words, text in zip(utterances, texts, strict=True)
        ],
    }


HELLO = record([("Hello,", 0.1, 0.4), ("world.", 0.412, 1.3)], [], [("<Bye>", 3.5, 3.75), ("&", 3.75, 3.9)])


def test_text_is_a_line_for_each_utterance_that_said_something() -> None:
    assert file_text(HELLO, Format.TXT) == "Hello, world.\n<Bye> &\n"
    assert joined_line(HELLO) == "a.wav\tHello, world. <Bye> &\n"


def test_json_is_the_record_alone_or_all_in_an_array() -> None:
    assert json.loads(file_text(HELLO, Format.JSON)) == HELLO
    assert json.loads(joined_json([HELLO, HELLO])) == [HELLO, HELLO]


def test_subrip() -> None:
    assert file_text(HELLO, Format.SRT) == (
        "1\n00:00:00,100 --> 00:00:01,300\nHello, world.\n\n2\n00:00:03,500 --> 00:00:04,500\n<Bye> &\n"
    )


def test_webvtt_escapes_what_it_would_take_for_marks() -> None:
    assert file_text(HELLO, Format.VTT) == (
        "WEBVTT\n\n00:00:00.100 --> 00:00:01.300\nHello, world.\n\n00:00:03.500 --> 00:00:04.500\n&lt;Bye&gt; &amp;\n"
    )


@pytest.mark.parametrize(("form", "empty"), [(Format.TXT, ""), (Format.SRT, ""), (Format.VTT, "WEBVTT\n")])
def test_nothing_said_is_a_valid_file_without_text(form: Format, empty: str) -> None:
    assert file_text(record(), form) == empty
    assert file_text(record([]), form) == empty


def test_hours_and_rounding() -> None:
    cues = [Cue(start_ms=3_599_999, end_ms=3_600_001, lines=("a", "b")), Cue(start_ms=360_000_000, end_ms=1, lines=())]
    assert srt(cues).startswith("1\n00:59:59,999 --> 01:00:00,001\na\nb\n\n2\n100:00:00,000 --> ")


def test_an_arrow_in_the_text_is_not_taken_for_times() -> None:
    cues = [Cue(start_ms=0, end_ms=1, lines=("a --> b",))]
    assert srt(cues).count("-->") == vtt(cues).count("-->") == 1


@given(st.lists(st.text(min_size=1, max_size=8), max_size=12))
def test_whatever_the_words_are_blank_lines_separate_cues_alone(words: list[str]) -> None:
    """White space within a word separates words; a blank line within a cue would end it."""
    timed = [(word, float(index), index + 0.5) for index, word in enumerate(words)]
    said = " ".join(words).split()
    text = file_text(record(timed) if timed else record(), Format.SRT)
    blocks = text.split("\n\n") if text else []
    shown = []
    for number, block in enumerate(blocks, 1):
        head, times, *lines = block.rstrip("\n").split("\n")
        assert head == str(number)
        assert re.fullmatch(r"\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}", times)
        assert 1 <= len(lines) <= 2
        shown += " ".join(lines).split()
    assert shown == [word.replace("-->", "→") for word in said]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (None, Format.TXT),
        ("a.srt", Format.SRT),
        ("a.VTT", Format.VTT),
        ("a.json", Format.JSON),
        ("a.txt", Format.TXT),
        ("a", Format.TXT),
    ],
)
def test_the_ending_of_a_file_names_its_format(name: str | None, form: Format) -> None:
    assert format_named(None if name is None else Path(name)) is form


@pytest.mark.parametrize("name", ["x.pdf", "x.srt.bak", "x.text"])
def test_an_ending_of_no_format_is_refused(name: str) -> None:
    with pytest.raises(BadParameter, match=r"known: \.txt \.json \.srt \.vtt"):
        format_named(Path(name))
