"""Subtitles: where cues and lines break, and how long they stay."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.recordings.subtitles import LINE_CHARS, LONGEST_MS, SHORTEST_MS, Cue, TimedWord, subtitles


def said(text: str, *, start_ms: int = 0, word_ms: int = 250, gap_ms: int = 50) -> list[TimedWord]:
    """Words of even length."""
    words = []
    for index, each in enumerate(text.split()):
        at_ms = start_ms + index * (word_ms + gap_ms)
        words.append(TimedWord(text=each, start_ms=at_ms, end_ms=at_ms + word_ms))
    return words


def texts(cues: list[Cue]) -> list[str]:
    return ["/".join(cue.lines) for cue in cues]


def test_nothing_said_is_no_cue() -> None:
    assert subtitles([]) == []


def test_a_cue_is_a_sentence_where_that_fits() -> None:
    words = said(
        "The harbour is quiet at this hour. Nobody has seen the ship that left for the north in the month of May."
    )
    assert texts(subtitles(words)) == [
        "The harbour is quiet at this hour.",
        "Nobody has seen the ship that left/for the north in the month of May.",
    ]
    short = said("The harbour is quiet. Nobody is there.")
    assert texts(subtitles(short)) == ["The harbour is quiet. Nobody is there."]


def test_a_long_sentence_breaks_at_a_clause_and_lines_are_even() -> None:
    words = said(
        "When the tide had turned and the wind came round to the west, "
        "the old pilot took his glass and looked along the empty quay."
    )
    assert texts(subtitles(words)) == [
        "When the tide had turned/and the wind came round to the west,",
        "the old pilot took his glass/and looked along the empty quay.",
    ]


def test_without_punctuation_a_pause_is_where_a_cue_ends() -> None:
    first = said("we went down to the harbour in the morning to see", word_ms=200)
    second = said(
        "what the storm had left of the boats and of the old pier", start_ms=first[-1].end_ms + 400, word_ms=200
    )
    cues = subtitles(first + second)
    assert [text.replace("/", " ") for text in texts(cues)] == [
        "we went down to the harbour in the morning to see",
        "what the storm had left of the boats and of the old pier",
    ]


def test_no_cue_stays_over_a_long_pause() -> None:
    words = [*said("Yes."), *said("No.", start_ms=2_000)]
    assert [(cue.start_ms, cue.end_ms) for cue in subtitles(words)] == [(0, 1_000), (2_000, 3_000)]


def test_a_short_cue_stays_longer_and_starts_sooner_only_if_the_next_is_in_the_way() -> None:
    words = [
        TimedWord(text="Yes.", start_ms=3_000, end_ms=3_200),
        TimedWord(text="x" * 42, start_ms=3_500, end_ms=10_400),
        TimedWord(text="y" * 42, start_ms=10_400, end_ms=13_000),
    ]
    first, second, third = subtitles(words)
    assert (first.start_ms, first.end_ms) == (2_500, 3_500)
    assert (second.start_ms, second.end_ms, third.start_ms, third.end_ms) == (3_500, 10_400, 10_400, 13_000)


def test_a_text_that_takes_long_to_read_stays_while_nothing_follows() -> None:
    words = said("All of these words were said so fast that nobody can have read them", word_ms=60, gap_ms=0)
    (cue,) = subtitles(words)
    assert cue.end_ms == sum(map(len, cue.lines)) * 1000 // 20 > words[-1].end_ms


def test_a_word_longer_than_a_line_stands_alone_and_whole() -> None:
    long = "https://example.org/" + "a" * 40
    assert texts(subtitles(said(f"see {long} now"))) in ([f"see/{long}", "now"], ["see", f"{long}/now"])


def test_a_word_longer_than_a_cue_is_cut_in_time() -> None:
    (cue,) = subtitles([TimedWord(text="Aaaah!", start_ms=100, end_ms=20_000)])
    assert (cue.start_ms, cue.end_ms) == (100, 7_100)


def test_the_end_of_a_sentence_is_seen_behind_quotes() -> None:
    words = said('He said he would never do it "again." She did not believe one word of what he said to her.')
    assert texts(subtitles(words))[0] == 'He said he would never do it "again."'


word_texts = st.one_of(
    st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=12),
    st.sampled_from(["a", "the", "end.", "so,", "what?", "z" * 50]),
)


@st.composite
def speech(draw: st.DrawFn) -> list[TimedWord]:
    """Words whose starts do not run back; as an aligner's, they may overlap the next or have no length."""
    words = []
    at_ms = draw(st.integers(0, 5_000))
    for text in draw(st.lists(word_texts, max_size=60)):
        length_ms = draw(st.sampled_from([0, 20, 80, 240, 500, 3_000, 12_000]))
        words.append(TimedWord(text=text, start_ms=at_ms, end_ms=at_ms + length_ms))
        at_ms += draw(st.sampled_from([0, 0, length_ms, length_ms + 60, length_ms + 400, length_ms + 5_000]))
    return words


@given(speech())
def test_every_word_is_shown_once_in_order(words: list[TimedWord]) -> None:
    shown = [text for cue in subtitles(words) for line in cue.lines for text in line.split(" ")]
    assert shown == [word.text for word in words]


@given(speech())
def test_times_run_forward_and_cues_do_not_overlap(words: list[TimedWord]) -> None:
    cues = subtitles(words)
    assert all(0 <= cue.start_ms < cue.end_ms for cue in cues)
    assert all(before.end_ms <= after.start_ms for before, after in pairwise(cues))


@given(speech())
def test_cues_keep_to_the_limits(words: list[TimedWord]) -> None:
    cues = subtitles(words)
    for index, cue in enumerate(cues):
        assert 1 <= len(cue.lines) <= 2
        assert all(len(line) <= LINE_CHARS or " " not in line for line in cue.lines)
        assert cue.end_ms - cue.start_ms <= LONGEST_MS
        if cue.end_ms - cue.start_ms < SHORTEST_MS:  # then there was no room: neighbours on both sides
            assert index + 1 < len(cues)
            assert cue.start_ms == (cues[index - 1].end_ms if index else 0)
            assert cue.end_ms >= cues[index + 1].start_ms


@given(speech())
def test_a_cue_is_there_when_its_first_word_is_said(words: list[TimedWord]) -> None:
    """Unless the cue before it cannot go sooner: one of words that start together takes a millisecond."""
    at = 0
    latest_ms = 0
    for cue in subtitles(words):
        latest_ms = max(latest_ms + 1, words[at].start_ms)
        assert cue.start_ms <= latest_ms
        at += sum(len(line.split(" ")) for line in cue.lines)


def test_times_that_run_back_are_taken_for_the_latest_before_them() -> None:
    words = [TimedWord(text="one.", start_ms=5_000, end_ms=5_400), TimedWord(text="two.", start_ms=4_000, end_ms=4_100)]
    assert [word for cue in subtitles(words) for word in " ".join(cue.lines).split()] == ["one.", "two."]
    assert subtitles(words)[0].start_ms == 5_000


@pytest.mark.timeout(90)
def test_hours_of_speech_take_seconds() -> None:
    words = said("the ship sailed on and on, and nobody knew where. " * 2_000)
    assert len(words) == 20_000
    cues = subtitles(words)
    assert sum(len(line.split(" ")) for cue in cues for line in cue.lines) == 20_000
