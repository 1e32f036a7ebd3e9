"""Token ids to text and back."""

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asr_model.moonshine.dimensions import END, START, VOCABULARY
from asr_model.moonshine.tokenizer import Tokenizer
from asr_model.moonshine.weights import load_weights


@cache
def loaded() -> Tokenizer:
    return load_weights().tokenizer()


@pytest.fixture
def tokenizer() -> Tokenizer:
    return loaded()


def test_every_id_of_the_vocabulary_spells_something_or_nothing(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.pieces) == len(tokenizer.opens_word) == VOCABULARY
    assert tokenizer.text([START, END, 0, VOCABULARY - 1]) == ""


def test_the_ids_of_a_text_are_those_of_the_published_tokenizer(tokenizer: Tokenizer) -> None:
    """The quick brown fox in the vocabulary that Moonshine shares with Llama 2."""
    assert tokenizer.tokens("The quick brown fox") == [450, 4996, 17354, 1701, 29916]


def test_a_word_opens_with_a_space_and_goes_on_without(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.tokens("certainly unforgettable")
    opening = [tokenizer.opens_word[token] for token in tokens]
    assert opening.count(True) == 2
    assert opening[0]
    assert len(tokens) > 2


@given(st.lists(st.text(st.characters(exclude_categories=("Z", "C"), exclude_characters="\u2581"), min_size=1)))
def test_text_survives_the_way_through_tokens(words: list[str]) -> None:
    tokenizer = loaded()
    text = " ".join(words)
    assert tokenizer.text(tokenizer.tokens(text)) == text


def test_characters_without_a_piece_become_their_bytes(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.tokens("𓀀")
    assert len(tokens) == 1 + len("𓀀".encode())
    assert tokenizer.text(tokens) == "𓀀"
    assert tokenizer.text(tokens[:3]) == "\ufffd"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda raw: raw[:-1], "within a piece"),
        (lambda raw: raw[: raw.index(b"\xe2\x96\x81t") - 1], "260 pieces, not 32000"),
        (lambda raw: b"\xff", "within a length"),
        (lambda raw: raw + b"\x01a", "32001 pieces"),
    ],
)
def test_a_damaged_vocabulary_is_refused(tokenizer: Tokenizer, damage: Callable[[bytes], bytes], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Tokenizer(damage(tokenizer.raw))
