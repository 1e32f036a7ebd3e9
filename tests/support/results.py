"""Messages of the service as a client gets them, written down by hand."""

import json
from typing import Any


def results(
    text: str,
    *,
    is_final: bool,
    utterance: int = 0,
    covered_s: float = 0.0,
    live: str | None = None,
    committed_words: int = 1,
) -> str:
    """A Results message; ``live``: the live text, if it is another than ``text``."""
    words = [
        {"word": word.lower().strip(".,"), "punctuated_word": word, "start": 0.0, "end": 0.0, "confidence": 1.0}
        for word in text.split()
    ]
    moorage: dict[str, Any] = {
        "sequence_id": "s",
        "instance": 1,
        "slot": 2,
        "batch_size": 3,
        "queue_ms": 4.0,
        "step_ms": 5.0,
        "utterance": utterance,
        "covered_s": covered_s,
        "committed_words": committed_words,
        "live_text": text if live is None else live,
        "live_words": [],
    }
    return json.dumps(
        {
            "type": "Results",
            "channel_index": [0, 1],
            "start": 0.0,
            "duration": covered_s,
            "is_final": is_final,
            "speech_final": is_final,
            "from_finalize": False,
            "channel": {"alternatives": [{"transcript": text, "confidence": 1.0, "words": words}]},
            "metadata": {"request_id": "r", "model_info": {}, "model_uuid": "u", "moorage": moorage},
        }
    )


def metadata() -> str:
    """The Metadata message."""
    return json.dumps({"type": "Metadata", "request_id": "r", "sha256": "", "duration": 1.0, "channels": 1})


def error(code: str, *, closes: bool) -> str:
    """An Error message."""
    return json.dumps({"type": "Error", "code": code, "message": "what went wrong", "closes": closes})
