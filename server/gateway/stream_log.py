"""The lines about streams: one when a stream opens or is refused, one when it ends and why.

Neither audio nor text is in them; final texts have lines of their own, where ``log.transcripts = true`` asks for them.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from server.codec.audio_format import AudioFormat
from server.engine.sequence_handle import SequenceHandle
from server.events import SequenceFailed, UtteranceFinal

SAMPLE_RATE = 16_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """Whose stream it is."""

    request_id: str
    key_name: str | None
    """Of the API key that it came with; None: without one."""


def log_refused(request_id: str, code: str) -> None:
    """The only line of a stream that was not let in; ``code`` is the error's."""
    fields = {"event": "stream_refused", "request_id": request_id, "cause": code}
    logger.info("stream refused", extra=fields)


def log_opened(source: StreamSource, audio: AudioFormat, handles: Sequence[SequenceHandle]) -> None:
    """The first line of a stream; ``queued`` is how many of its sequences wait for a slot."""
    fields = {
        "event": "stream_opened",
        "request_id": source.request_id,
        "key": source.key_name,
        "sequences": len(handles),
        "queued": sum(handle.place > 0 for handle in handles),
        "encoding": audio.encoding,
        "sample_rate": audio.sample_rate,
        "channels": audio.channels,
    }
    logger.info("stream opened", extra=fields)


def log_ended(
    source: StreamSource, handles: Sequence[SequenceHandle], close_code: int | None, connected_s: float
) -> None:
    """The last line of a stream.

    Args:
        source: Whose it is.
        handles: Its sequences, all of them ended; one or more.
        close_code: Of the websocket; None where the connection was lost.
        connected_s: Time since the upgrade.
    """
    fields = {
        "event": "stream_ended",
        "request_id": source.request_id,
        "key": source.key_name,
        "cause": stream_cause(handles),
        "close_code": close_code,
        "connected_s": round(connected_s, 3),
        "audio_s": round(max(handle.n_samples for handle in handles) / SAMPLE_RATE, 3),
        "finals": sum(handle.replies.n_finals_told for handle in handles),
        "slot_wait_s": round(max(handle.slot_wait_ns for handle in handles) / 1e9, 3),
        "max_lag_ms": round(max(_max_lag_ns(handle) for handle in handles) / 1e6, 1),
    }
    logger.info("stream ended", extra=fields)


def log_transcript(final: UtteranceFinal) -> None:
    """A final text. Call it only where ``log.transcripts`` is true."""
    fields = {
        "event": "transcript",
        "sequence_id": final.sequence_id,
        "utterance": final.utterance,
        "start_s": round(final.start_s, 3),
        "end_s": round(final.end_s, 3),
        "text": " ".join(word.text for word in final.words),
    }
    logger.info("transcript", extra=fields)


def stream_cause(handles: Sequence[SequenceHandle]) -> str:
    """Why a stream ended: the code of the first sequence that failed, else how the first one ended."""
    ends = [handle.replies.terminal for handle in handles]
    failures = [end.error.code for end in ends if isinstance(end, SequenceFailed)]
    causes = [end.cause.value for end in ends if end is not None and not isinstance(end, SequenceFailed)]
    return next(iter(failures + causes), "unknown")


def _max_lag_ns(handle: SequenceHandle) -> int:
    return handle.delays.max_lag_ns if handle.delays is not None else 0
