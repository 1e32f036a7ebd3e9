"""From tokens to words: what each word takes with it."""

from asr_model.live.transcription import Place, Tokens, words_of
from asr_model.moonshine.dimensions import START
from asr_model.moonshine.tokenizer import Tokenizer
from asr_model.moonshine.weights import load_weights


def told(tokenizer: Tokenizer, parts: list[tuple[str, list[float]]]) -> Tokens:
    """Texts one after the other, with the margins of their tokens; a passage begins before each but the first."""
    ids, margins = list[int](), list[float]()
    for text, of_text in parts:
        if ids:
            ids, margins = [*ids, START], [*margins, 0.0]
        found = tokenizer.tokens(text)
        ids, margins = [*ids, *found], [*margins, *(of_text + [9.0] * len(found))[: len(found)]]
    centres = [10.0 * at for at in range(len(ids))]
    return Tokens(ids, centres, [1.0] * len(ids), margins)


def test_a_words_margin_is_the_least_of_its_tokens() -> None:
    """Punctuation's too, and not that of what begins a passage."""
    tokenizer = load_weights().tokenizer()
    n = len(tokenizer.tokens("unforgettable"))
    assert n > 1
    tokens = told(tokenizer, [("unforgettable, day", [3.0] * (n - 1) + [2.0, 1.0, 5.0]), ("again", [4.0])])
    words = words_of(tokenizer, tokens, Place(0, 1000, 0))
    assert [(word.text, word.margin) for word in words] == [("unforgettable,", 1.0), ("day", 5.0), ("again", 4.0)]


def test_words_that_were_told_take_their_margins_with_them() -> None:
    tokenizer = load_weights().tokenizer()
    words = words_of(tokenizer, told(tokenizer, [("good day", [0.1, 5.0])]), Place(0, 1000, 5))
    assert [(word.text, word.margin) for word in words] == [("day", 5.0)]
