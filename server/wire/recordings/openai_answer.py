"""What ``POST /v1/audio/transcriptions`` answers, as OpenAI's API has it. Pure."""

import json
import math
import zlib
from collections.abc import Sequence
from typing import Final

from asr_model.transcript import Word, joined
from server.errors import MoorageError, PeerError
from server.recordings.subtitle_files import srt, vtt
from server.recordings.subtitles import TimedWord, subtitles, timed
from server.wire.close_codes import public_message
from server.wire.recordings.openai_form import BadField, ResponseFormat, TranscriptionForm

Json = dict[str, object]

DECIMALS: Final = 3
TICKS_PER_S: Final = 100
"""``seek`` counts hundredths of a second."""
LEAST_CONFIDENCE: Final = 1e-4
CONTENT_TYPES: Final = {
    ResponseFormat.JSON: "application/json",
    ResponseFormat.VERBOSE_JSON: "application/json",
    ResponseFormat.TEXT: "text/plain; charset=utf-8",
    ResponseFormat.SRT: "text/plain; charset=utf-8",
    ResponseFormat.VTT: "text/vtt; charset=utf-8",
}


def answer(form: TranscriptionForm, pieces: Sequence[tuple[Word, ...]], duration_s: float) -> str:
    """The body of the answer.

    Args:
        form: What the client asked for.
        pieces: The words of each piece of the recording, in order.
        duration_s: Of the recording.
    """
    words = [word for piece in pieces for word in piece]
    match form.response_format:
        case ResponseFormat.TEXT:
            return text_of(pieces) + "\n"
        case ResponseFormat.SRT:
            return srt(subtitles(_timed(words)))
        case ResponseFormat.VTT:
            return vtt(subtitles(_timed(words)))
        case ResponseFormat.JSON:
            return _json({"text": text_of(pieces), "usage": _usage(duration_s)})
        case ResponseFormat.VERBOSE_JSON:
            return _json(_verbose(form, pieces, duration_s))


def text_of(pieces: Sequence[tuple[Word, ...]]) -> str:
    """All words as one line."""
    return " ".join(joined(piece) for piece in pieces if piece)


def delta_event(piece: tuple[Word, ...], *, is_first: bool) -> str:
    """The server-sent event of one piece that has words."""
    return _event({"type": "transcript.text.delta", "delta": ("" if is_first else " ") + joined(piece)})


def done_event(pieces: Sequence[tuple[Word, ...]], duration_s: float) -> str:
    """The last event."""
    return _event({"type": "transcript.text.done", "text": text_of(pieces), "usage": _usage(duration_s)})


def error_event(body: Json) -> str:
    """Instead of the last event, where reading fails in the middle."""
    return _event({"type": "error", **body})


def error_body(error: MoorageError) -> Json:
    """What is told of a refused request."""
    is_peer = isinstance(error, PeerError)
    return {
        "error": {
            "message": public_message(error),
            "type": "invalid_request_error" if is_peer else "server_error",
            "param": error.param if isinstance(error, BadField) else None,
            "code": error.code,
        }
    }


def _verbose(form: TranscriptionForm, pieces: Sequence[tuple[Word, ...]], duration_s: float) -> Json:
    body: Json = {
        "task": "transcribe",
        "language": "english",
        "duration": round(duration_s, DECIMALS),
        "text": text_of(pieces),
        "usage": _usage(duration_s),
    }
    if form.segment_times:
        body["segments"] = [_segment(index, piece) for index, piece in enumerate(filter(None, pieces))]
    if form.word_times:
        body["words"] = [
            {"word": word.text, "start": round(word.start_s, DECIMALS), "end": round(word.end_s, DECIMALS)}
            for piece in pieces
            for word in piece
        ]
    return body


def _segment(index: int, piece: tuple[Word, ...]) -> Json:
    """A piece with words. ``tokens`` is empty: they are of another tokenizer than clients know. ``no_speech_prob`` is
    what is left of the surest word: a piece without speech is no segment at all.
    """
    text = joined(piece)
    logprobs = [math.log(max(word.confidence, LEAST_CONFIDENCE)) for word in piece]
    encoded = text.encode()
    return {
        "id": index,
        "seek": int(piece[0].start_s * TICKS_PER_S),
        "start": round(piece[0].start_s, DECIMALS),
        "end": round(piece[-1].end_s, DECIMALS),
        "text": text,
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": round(sum(logprobs) / len(logprobs), DECIMALS),
        "compression_ratio": round(len(encoded) / len(zlib.compress(encoded)), DECIMALS),
        "no_speech_prob": round(max(0.0, 1.0 - max(word.confidence for word in piece)), DECIMALS),
    }


def _usage(duration_s: float) -> Json:
    return {"type": "duration", "seconds": math.ceil(duration_s)}


def _timed(words: Sequence[Word]) -> list[TimedWord]:
    return [each for word in words for each in timed(word.text, word.start_s, word.end_s)]


def _json(body: Json) -> str:
    return json.dumps(body, ensure_ascii=False) + "\n"


def _event(body: Json) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"
