"""Messages that no honest client sends: real ones, damaged by a seeded generator, so that each run has the same."""

import json
import math
import random
import struct
from collections.abc import Sequence
from typing import Final, TypeVar

from tests.support.accumulator_model import exact_audio
from tests.support.wire import linear16

CONTROL: Final = tuple(
    json.dumps(message)
    for message in (
        {"type": "Finalize"},
        {"type": "Finalize", "channel": 0},
        {"type": "CloseStream"},
        {"type": "KeepAlive"},
        {"type": "Configure", "features": {"punctuate": True, "numerals": False}, "keyterms": ["a"]},
        {"type": "Configure", "features": {}, "thresholds": {"eot_threshold": 0.7}},
    )
)
"""Text messages of the protocol."""
_AUDIO: Final = linear16(exact_audio(5, 400))
AUDIO: Final = (
    _AUDIO,
    _AUDIO[:1],
    _AUDIO[1:78],
    b"",
    b"\0" * 640,
    b"\xff" * 641,
    b"RIFF\x24\x08\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80>\0\0\0}\0\0\x02\0\x10\0data\0\x08\0\0" + _AUDIO[:80],
    b"fLaC\0\0\0\x22\x10\0\x10\0" + _AUDIO[:40],
    b"OggS\0\x02" + b"\0" * 20 + b"\x01\x13OpusHead\x01\x01",
    b"\x1aE\xdf\xa3\x9fB\x86\x81\x01",
    b"ID3\x04\0\0\0\0\0\x7f",
    struct.pack("<8f", 0.0, -0.0, 1.0, -1.0, 1e-45, 31.9, 0.5, -0.25),
    struct.pack("<5f", math.nan, math.inf, -math.inf, 3.4e38, 32.1),
    struct.pack("<I", 0x7FA00001) * 3,
)
"""Binary messages: samples in several encodings, the beginnings of files, floats that are no samples."""
QUERIES: Final = (
    "",
    "encoding=linear16&sample_rate=16000",
    "encoding=linear16&sample_rate=8000&interim_results=true&endpointing=300",
    "encoding=linear32&sample_rate=48000&channels=2&multichannel=true",
    "encoding=float32&sample_rate=16000",
    "encoding=mulaw&sample_rate=8000&channels=2",
    "encoding=alaw&sample_rate=8000&vad_events=true&utterance_end_ms=1000&interim_results=true",
    "model=nova-3&language=en&punctuate=true&smart_format=true&tag=a&tag=b&extra=k:v",
    "endpointing=false&numerals=false&channels=8&encoding=linear16&sample_rate=96000",
)
"""Queries of the websocket that are good, or nearly."""

_JSON: Final = ("null", "[]", "{}", "-1", "1e999", "NaN", "true", '""', '"\\ud800"', '"\\u0000"', "9" * 400, "[" * 300)
_CHARS: Final = (
    '"',
    "\\",
    "{",
    "}",
    "[",
    ",",
    ":",
    "\0",
    "\ud800",
    "\u2028",
    "é",
    "𝄞",
    "0",
    "%",
    "&",
    "=",
    "+",
    "type",
)
_BYTES: Final = (b"\0", b"\xff", b"\x7f\x80", b"\0\0\xc0\x7f", b"\0\0\x80\xff", b"OggS", b"RIFF", b"fLaC")

Piece = TypeVar("Piece", str, bytes)


class Mutator:
    """Damages messages; what it does depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.rng: Final = random.Random(seed)

    def message(self) -> str | bytes:
        """Text or audio, damaged up to a few times, or not at all."""
        kind = self.rng.random()
        return self.text() if kind < 0.1 else self.rng.choice(CONTROL[:2] + CONTROL[3:]) if kind < 0.3 else self.audio()

    def text(self) -> str:
        """A damaged control message."""
        return self._damaged(CONTROL, _CHARS + _JSON)

    def audio(self) -> bytes:
        """Damaged samples."""
        return self._damaged(AUDIO, _BYTES)

    def query(self) -> str:
        """A damaged query."""
        return self._damaged(QUERIES, _CHARS + _JSON)

    def good_query(self) -> str:
        """One that is not damaged."""
        return self.rng.choice(QUERIES)

    def lines(self, request: bytes) -> bytes:
        """``request`` with one or two of its lines damaged, dropped, or doubled."""
        rng = self.rng
        lines = request.decode("latin-1").split("\r\n")[:-2]
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(lines))
            line = self._once(lines[at], lines, _CHARS)
            lines[at : at + 1] = rng.choice(([line], [line], [line], [], [lines[at], line]))
            lines = lines or [""]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def damaged(self, message: bytes, times: int) -> bytes:
        """``message`` after so many mutations."""
        for _ in range(times):
            message = self._once(message, AUDIO, _BYTES)
        return message

    def _damaged(self, corpus: Sequence[Piece], inserts: Sequence[Piece]) -> Piece:
        message = self.rng.choice(corpus)
        for _ in range(self.rng.choice((0, 1, 1, 2, 3, 8))):
            message = self._once(message, corpus, inserts)
        return message

    def _once(self, message: Piece, corpus: Sequence[Piece], inserts: Sequence[Piece]) -> Piece:
        rng = self.rng
        start, end = sorted((rng.randint(0, len(message)), rng.randint(0, len(message))))
        match rng.randrange(6):
            case 0:  # cut out
                return message[:start] + message[end:]
            case 1:  # cut off
                return message[:start]
            case 2:  # doubled in place
                return message[:end] + message[start:]
            case 3:  # something strange put in, or put over
                return message[: rng.choice((start, end))] + rng.choice(inserts) + message[end:]
            case 4:  # another message from here on
                other = rng.choice(corpus)
                return message[:start] + other[rng.randint(0, len(other)) :]
            case _:  # a piece turned round: digits and bits change their places
                return message[:start] + message[start:end][::-1] + message[end:]
