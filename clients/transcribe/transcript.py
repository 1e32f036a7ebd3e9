"""What ``moorage transcribe`` says of a file, as plain data for JSON. Pure."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from asr_model.transcript import Word, joined
from server.events import UtteranceFinal

DECIMALS = 3
"""Of seconds and confidences."""


class WordRecord(TypedDict):
    """A word of the final text; times in seconds of the file."""

    word: str
    start: float
    end: float
    confidence: float


class SegmentRecord(TypedDict):
    """One utterance in which something was said."""

    start: float
    end: float
    text: str
    live_text: str
    words: list[WordRecord]


class FileRecord(TypedDict):
    """One file. ``error`` is there if it could not be transcribed to its end; the rest is what came before."""

    file: str
    seconds: float
    text: str
    live_text: str
    segments: list[SegmentRecord]
    error: NotRequired[str]


def file_record(file: str, seconds: float, finals: Sequence[UtteranceFinal], error: str | None = None) -> FileRecord:
    """A file's utterances as one record; those without a word are left out.

    Args:
        file: The file as it was named.
        seconds: Its length.
        finals: Its utterances, in order.
        error: Why it was not transcribed to its end.
    """
    segments = [_segment(final) for final in finals if final.words or final.live_words]
    record: FileRecord = {
        "file": file,
        "seconds": round(seconds, DECIMALS),
        "text": " ".join(segment["text"] for segment in segments if segment["text"]),
        "live_text": " ".join(segment["live_text"] for segment in segments if segment["live_text"]),
        "segments": segments,
    }
    if error is not None:
        record["error"] = error
    return record


def _segment(final: UtteranceFinal) -> SegmentRecord:
    return {
        "start": round(final.start_s, DECIMALS),
        "end": round(final.end_s, DECIMALS),
        "text": joined(final.words),
        "live_text": joined(final.live_words),
        "words": [_word(word) for word in final.words],
    }


def _word(word: Word) -> WordRecord:
    return {
        "word": word.text,
        "start": round(word.start_s, DECIMALS),
        "end": round(word.end_s, DECIMALS),
        "confidence": round(word.confidence, DECIMALS),
    }
