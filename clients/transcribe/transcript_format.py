"""Transcripts as text, JSON and subtitles (SubRip, WebVTT). Pure."""

import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from clients.transcribe.transcript import FileRecord
from server.errors import BadParameter
from server.recordings.subtitle_files import srt, vtt
from server.recordings.subtitles import TimedWord, subtitles, timed


class Format(Enum):
    """How a transcript is written; the value is the ending of its file too."""

    TXT = "txt"
    JSON = "json"
    SRT = "srt"
    VTT = "vtt"

    @property
    def joins_files(self) -> bool:
        """Whether the transcripts of several files can stand in one."""
        return self in (Format.TXT, Format.JSON)


def format_named(path: Path | None) -> Format:
    """The format that a file's ending asks for; plain text where there is no ending.

    Raises:
        BadParameter: An ending of no format.
    """
    ending = path.suffix.removeprefix(".").lower() if path else ""
    if not ending:
        return Format.TXT
    if ending not in {form.value for form in Format}:
        known = " ".join(f".{form.value}" for form in Format)
        raise BadParameter(f"{path}: the ending is of no format; known: {known}, or say --format")
    return Format(ending)


def file_text(record: FileRecord, form: Format) -> str:
    """What is written of one file; lines end with a line feed, and nothing said is an empty but valid file."""
    match form:
        case Format.TXT:
            return "".join(f"{segment['text']}\n" for segment in record["segments"] if segment["text"])
        case Format.JSON:
            return json.dumps(record, ensure_ascii=False, indent=2) + "\n"
        case Format.SRT:
            return srt(subtitles(spoken_words(record)))
        case Format.VTT:
            return vtt(subtitles(spoken_words(record)))


def joined_line(record: FileRecord) -> str:
    """One of several files in a common text: its name, a tab, its text, a line feed."""
    return f"{record['file']}\t{record['text']}\n"


def joined_json(records: Sequence[FileRecord]) -> str:
    """All files as one array."""
    return json.dumps(records, ensure_ascii=False, indent=2) + "\n"


def spoken_words(record: FileRecord) -> list[TimedWord]:
    """The words of the final text."""
    return [
        each
        for segment in record["segments"]
        for word in segment["words"]
        for each in timed(word["word"], word["start"], word["end"])
    ]
