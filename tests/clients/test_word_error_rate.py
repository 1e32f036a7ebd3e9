"""Word errors: normalisation and distance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.word_error_rate import WordErrors, word_errors, words

WORD = st.sampled_from(["a", "b", "it's", "o", "non"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IN THE SILENCE", ["in", "the", "silence"]),
        ("Well-known; that's it.", ["well", "known", "that's", "it"]),
        ("“Yes”, café 3rd\n", ["yes", "caf", "rd"]),
        ("  \t…—  ", []),
    ],
)
def test_words_are_lower_case_letters_and_apostrophes(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("reference", "heard", "counts"),
    [
        ("a b c d", "A, b. c-d!", (0, 0, 0, 4)),
        ("a b c d", "a x c d", (1, 0, 0, 4)),
        ("a b c d", "a c d", (0, 1, 0, 4)),
        ("a b c d", "a b b c d", (0, 0, 1, 4)),
        ("a b", "", (0, 2, 0, 2)),
        ("", "a b", (0, 0, 2, 0)),
        ("…", "!", (0, 0, 0, 0)),
    ],
)
def test_errors_by_kind(reference: str, heard: str, counts: tuple[int, int, int, int]) -> None:
    found = word_errors(reference, heard)
    assert (found.substitutions, found.deletions, found.insertions, found.reference_words) == counts


def test_rate_is_over_the_sum_of_the_references() -> None:
    total = word_errors("a b c", "a b x") + word_errors("d", "d e")
    assert total == WordErrors(substitutions=1, insertions=1, reference_words=4)
    assert total.percent == 50.0


@given(st.lists(WORD, max_size=8), st.lists(WORD, max_size=8))
def test_distance_is_the_edit_distance(reference: list[str], heard: list[str]) -> None:
    row = list(range(len(heard) + 1))
    for i, left in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    assert word_errors(" ".join(reference), " ".join(heard)).distance == row[-1]
