"""Words for tests of what is said of recordings."""

from asr_model.transcript import Word


def said(text: str, start_s: float = 0.0, word_s: float = 0.4, confidence: float = 0.9) -> tuple[Word, ...]:
    """The words of a text, one after the other without gaps."""
    return tuple(
        Word(
            text=word,
            start_s=start_s + index * word_s,
            end_s=start_s + (index + 1) * word_s,
            confidence=confidence,
        )
        for index, word in enumerate(text.split())
    )
