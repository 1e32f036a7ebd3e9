"""Two texts word by word."""

from clients.demo.words_apart import Mark, marked


def marks(reference: str, heard: str) -> list[tuple[str, str]]:
    return [(word.text, word.mark.value) for word in marked(reference, heard)]


def test_capitals_and_punctuation_do_not_matter() -> None:
    assert {word.mark for word in marked("GRAHAM MOVED CLOSER", "Graham, moved closer.")} == {Mark.RIGHT}


def test_missing_and_added_words_stand_where_they_belong() -> None:
    assert marks("ONE TWO THREE FOUR", "One four five.") == [
        ("One", "right"),
        ("two", "missing"),
        ("three", "missing"),
        ("four", "right"),
        ("five.", "wrong"),
    ]


def test_another_word_stands_behind_what_was_said() -> None:
    assert marks("ONE TWO", "one too") == [("one", "right"), ("two", "missing"), ("too", "wrong")]


def test_nothing() -> None:
    assert marks("ONE", "") == [("one", "missing")]
    assert marks("", "one") == [("one", "wrong")]
