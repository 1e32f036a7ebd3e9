"""How words are written, as a client asks for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asr_model.transcript import Word
from server.wire.text_format import FILLERS, PROFANITY, TextFormat, bare_word


def said(*texts: str) -> tuple[Word, ...]:
    return tuple(Word(text=text, start_s=at / 2, end_s=(at + 1) / 2, confidence=0.5) for at, text in enumerate(texts))


def transcript(form: TextFormat, text: str) -> str:
    return form.transcript(form.written(said(*text.split())))


class TestBareWord:
    @pytest.mark.parametrize(
        ("written", "bare"),
        [
            ("Hello,", "hello"),
            ("Don't", "don't"),
            ("'quoted'", "quoted"),
            ("“Well,”", "well"),
            ("well-known.", "well-known"),
            ("and/or", "and/or"),
            ("wait—no", "wait—no"),
            ("U.S.", "us"),
            ("(sic)", "sic"),
            ("3.5", "3.5"),
            ("3.", "3"),
            ("1,000,", "1,000"),
            ("10:30?", "10:30"),
            (".5", "5"),
            ("$3.50!", "$3.50"),
            ("20%.", "20%"),
            ("%", "%"),
            ("—", "—"),
            ("...", "..."),
            ("Él", "él"),
            ("", ""),
        ],
    )
    def test_examples(self, written: str, bare: str) -> None:
        assert bare_word(written) == bare

    @given(st.text(max_size=12))
    def test_it_is_stable(self, written: str) -> None:
        bare = bare_word(written)
        assert bare_word(bare) == bare
        assert not written or bare


class TestPunctuate:
    TEXT = "Well, U.S. sales — up 3.5% — aren't 'bad'. Are they? ..."

    def test_as_the_models_write(self) -> None:
        assert transcript(TextFormat(), self.TEXT) == self.TEXT

    def test_off(self) -> None:
        form = TextFormat(punctuate=False)
        assert transcript(form, self.TEXT) == "well us sales up 3.5% aren't bad are they"

    def test_off_keeps_times_of_what_is_left(self) -> None:
        words = TextFormat(punctuate=False).written(said("Yes", "—", "no."))
        assert [(word.bare, word.source.start_s) for word in words] == [("yes", 0.0), ("no", 1.0)]

    def test_nothing_is_said(self) -> None:
        assert transcript(TextFormat(punctuate=False), "... —") == ""


class TestFillerWords:
    def test_off(self) -> None:
        text = "Um, so, uh, the umbrella, uh-huh. Umm."
        assert transcript(TextFormat(filler_words=False), text) == "so, the umbrella, uh-huh."
        assert transcript(TextFormat(), text) == text

    def test_with_punctuation_off(self) -> None:
        assert transcript(TextFormat(filler_words=False, punctuate=False), "Uh... Yes!") == "yes"


class TestProfanity:
    def test_masked(self) -> None:
        text = "Shit, that's bullshit. Shitake in Scunthorpe!"
        assert transcript(TextFormat(mask_profanity=True), text) == "****, that's ********. Shitake in Scunthorpe!"
        assert transcript(TextFormat(), text) == text

    def test_masked_with_punctuation_off(self) -> None:
        form = TextFormat(mask_profanity=True, punctuate=False)
        assert transcript(form, "Oh, shit!") == "oh ****"
        assert [word.text for word in form.written(said("Shit!"))] == ["****!"]

    def test_the_lists_are_of_bare_words(self) -> None:
        assert all(bare_word(word) == word for word in PROFANITY | FILLERS)


WORDS = st.lists(st.sampled_from(["Um,", "Shit!", "—", "Hello,", "3.5", "uh", "...", "don't"]), max_size=8)


class TestAnyWords:
    @given(WORDS, WORDS, st.booleans(), st.booleans(), st.booleans())
    def test_a_word_does_not_depend_on_its_neighbours(
        self, before: list[str], after: list[str], punctuate: bool, filler_words: bool, mask_profanity: bool
    ) -> None:
        """So that committed words and the draft after them may be written apart, and stay as they are."""
        form = TextFormat(punctuate=punctuate, filler_words=filler_words, mask_profanity=mask_profanity)
        words = said(*before, *after)
        assert form.written(words) == form.written(words[: len(before)]) + form.written(words[len(before) :])
