"""The words of a recording in stretches: utterances by pauses, sentences by marks, paragraphs of sentences. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from server.wire.text_format import WrittenWord

Words = Sequence[WrittenWord]

PARAGRAPH_PAUSE_S: Final = 1.5
PARAGRAPH_SENTENCES: Final = 5
"""Of a paragraph at most."""
SENTENCE_ENDS: Final = (".", "?", "!", "…")
CLOSERS: Final = "\"'”’)]»"


def utterances(words: Words, split_s: float) -> Iterator[Words]:
    """Stretches without a gap of ``split_s`` between two words."""
    begin = 0
    for index in range(1, len(words)):
        if words[index].source.start_s - words[index - 1].source.end_s >= split_s:
            yield words[begin:index]
            begin = index
    if words:
        yield words[begin:]


def sentences(words: Words) -> Iterator[Words]:
    """Stretches that end with a mark, or with the words."""
    begin = 0
    for index, word in enumerate(words, 1):
        if word.source.text.rstrip(CLOSERS).endswith(SENTENCE_ENDS):
            yield words[begin:index]
            begin = index
    if begin < len(words):
        yield words[begin:]


def paragraphs(words: Words) -> Iterator[list[Words]]:
    """Sentences in order; a pause before one, or enough of them, begin another paragraph."""
    paragraph: list[Words] = []
    for sentence in sentences(words):
        if paragraph and (
            len(paragraph) == PARAGRAPH_SENTENCES
            or sentence[0].source.start_s - paragraph[-1][-1].source.end_s >= PARAGRAPH_PAUSE_S
        ):
            yield paragraph
            paragraph = []
        paragraph.append(sentence)
    if paragraph:
        yield paragraph


def confidence(words: Words) -> float:
    """Mean of the words', 0 without any; four decimals."""
    return round(sum(word.source.confidence for word in words) / len(words), 4) if words else 0.0
