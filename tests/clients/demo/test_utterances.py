"""What the demonstration plays."""

from collections import Counter
from pathlib import Path

import pytest

from clients.demo.utterances import (
    FIXTURES,
    LengthClass,
    Recording,
    as_utterances,
    by_length,
    deal,
    quick_choice,
    read_recordings,
)
from server.errors import BadParameter
from tests.clients.demo.made import TICK_SAMPLES, utterance


@pytest.mark.parametrize(
    ("n_ticks", "length"),
    [(1, "1–4"), (4, "1–4"), (5, "5–12"), (12, "5–12"), (13, "13–30"), (30, "13–30"), (31, "31+"), (500, "31+")],
)
def test_classes(n_ticks: int, length: str) -> None:
    assert LengthClass.of(n_ticks).value == length


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return read_recordings(FIXTURES)


def test_the_fixtures_fill_every_class(recordings: list[Recording]) -> None:
    found = by_length(as_utterances(recordings, TICK_SAMPLES))
    assert {length.value: len(chosen) for length, chosen in found.items()} == {
        "1–4": 7,
        "5–12": 15,
        "13–30": 14,
        "31+": 7,
    }
    longest = found[LengthClass.LONG]
    assert longest[-1].name == "en_029_44k.mp3"  # the only synthesised one comes after the real ones
    assert [each.n_ticks for each in longest] == [36, 36, 38, 49, 50, 51, 37]
    assert all(each.samples.size <= each.n_ticks * TICK_SAMPLES for chosen in found.values() for each in chosen)


def test_the_quick_choice_is_the_first_of_each_class(recordings: list[Recording]) -> None:
    chosen = quick_choice(as_utterances(recordings, TICK_SAMPLES))
    counted = Counter(each.length for each in chosen)
    assert [counted[length] for length in LengthClass] == [7, 6, 4, 4]
    assert sum(each.n_ticks for each in chosen) < 300  # what keeps it under three minutes


class TestDeal:
    def test_everything_is_played_once_where_there_is_enough(self) -> None:
        utterances = [utterance(f"{n_ticks}", n_ticks) for n_ticks in (2, 3, 6, 14, 33, 40)]
        hands = deal(utterances, 2)
        assert sorted(each.name for hand in hands for each in hand) == sorted(each.name for each in utterances)
        assert [sum(each.length is LengthClass.LONG for each in hand) for hand in hands] == [1, 1]

    def test_every_client_has_one_of_the_longest(self) -> None:
        utterances = [utterance(f"{n_ticks}", n_ticks) for n_ticks in (2, 6, 14, 33, 40)]
        hands = deal(utterances, 5)
        assert all(any(each.length is LengthClass.LONG for each in hand) for hand in hands)
        names = Counter(each.name for hand in hands for each in hand)
        assert set(names.values()) == {3}

    def test_clients_begin_with_different_classes(self) -> None:
        utterances = [utterance(f"{n_ticks}-{copy}", n_ticks) for n_ticks in (2, 6, 14, 33) for copy in range(4)]
        assert len({hand[0].length for hand in deal(utterances, 4)}) == 4

    def test_without_long_ones_the_longest_there_are_count(self) -> None:
        hands = deal([utterance("a", 2), utterance("b", 6)], 2)
        assert [[each.name for each in hand] for hand in hands] == [["b", "a"], ["a", "b"]]


class TestManifest:
    def test_without_one(self, tmp_path: Path) -> None:
        with pytest.raises(BadParameter, match="cannot be read as a manifest"):
            read_recordings(tmp_path)

    def test_without_texts(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.tsv").write_text("file\ttext\na.wav\t\n")
        with pytest.raises(BadParameter, match="no recordings with a text"):
            read_recordings(tmp_path)

    def test_with_a_recording_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.tsv").write_text("file\ttext\na.wav\tyes\n")
        (tmp_path / "a.wav").write_bytes(b"no audio")
        with pytest.raises(BadParameter, match=r"a\.wav"):
            read_recordings(tmp_path)
