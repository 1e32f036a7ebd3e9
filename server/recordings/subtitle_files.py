"""Cues as files: SubRip and WebVTT. Pure."""

from collections.abc import Sequence

from server.recordings.subtitles import Cue


def srt(cues: Sequence[Cue]) -> str:
    """SubRip. It knows no escapes: an arrow among the words, which would be taken for times, becomes a sign."""
    blocks = (
        f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n"
        + "".join(f"{line.replace('-->', '→')}\n" for line in cue.lines)
        for number, cue in enumerate(cues, 1)
    )
    return "\n".join(blocks)


def vtt(cues: Sequence[Cue]) -> str:
    """WebVTT."""
    blocks = (
        f"\n{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n"
        + "".join(f"{_escaped(line)}\n" for line in cue.lines)
        for cue in cues
    )
    return "WEBVTT\n" + "".join(blocks)


def _clock(time_ms: int, separator: str) -> str:
    """HH:MM:SS,mmm; hours go on beyond 99."""
    seconds, ms = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{separator}{ms:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
