"""Moonshine's vocabulary: what each token spells.

``tokenizer.bin`` lists the pieces in order of their ids, each as a length (7 bits, and 7 more where the top bit is set)
and that many bytes. U+2581 stands for a space, so a piece that begins with it opens a word. Most pieces are whole
characters; some are single bytes of one.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from asr_model.moonshine.dimensions import VOCABULARY

SPACE: Final = "\u2581"
PIECES: Final = 32_000
"""Pieces in the file; the ids from here up to the size of the vocabulary spell nothing."""
FIRST_TEXT_TOKEN: Final = 3
"""Ids below it (unknown, START, END) spell nothing."""


class Tokenizer:
    """Token ids to text, and back for texts that a decoder is forced to read."""

    def __init__(self, raw: bytes) -> None:
        """Reads the content of ``tokenizer.bin``.

        Raises:
            ValueError: it does not hold exactly the vocabulary.
        """
        pieces = list(_pieces(raw))
        if len(pieces) != PIECES:
            raise ValueError(f"the tokenizer holds {len(pieces)} pieces, not {PIECES}")
        self.raw = raw
        """The file's content, for copying it."""
        self.ids: dict[bytes, int] = {piece: i for i, piece in enumerate(pieces) if i >= FIRST_TEXT_TOKEN}
        """Token id of a piece; of equal pieces the last, which is a whole character and no single byte."""
        silent = [b""] * FIRST_TEXT_TOKEN
        self.pieces: tuple[bytes, ...] = (*silent, *pieces[FIRST_TEXT_TOKEN:], *[b""] * (VOCABULARY - PIECES))
        """What each of the vocabulary's ids spells."""
        space = SPACE.encode()
        self.opens_word: tuple[bool, ...] = tuple(piece.startswith(space) for piece in self.pieces)
        """Per token id, whether it opens a word."""

    def text(self, tokens: Iterable[int]) -> str:
        """The tokens' text, without space at its ends."""
        spelled = b"".join(self.pieces[token] for token in tokens)
        return spelled.decode("utf8", "replace").replace(SPACE, " ").strip()

    def tokens(self, text: str) -> list[int]:
        """The ids that the decoder was taught for a text: neighbours merge, the lowest id first."""
        marked = SPACE + SPACE.join(text.split())
        found = [self.ids[piece] for character in marked for piece in self._known(character)]
        while merges := [
            (self.ids.get(self.pieces[a] + self.pieces[b], PIECES), at) for at, (a, b) in enumerate(pairwise(found))
        ]:
            merged, at = min(merges)
            if merged == PIECES:
                break
            found[at : at + 2] = [merged]
        return found

    def _known(self, character: str) -> list[bytes]:
        """The character as one piece, or as its bytes."""
        raw = character.encode()
        return [raw] if raw in self.ids else [bytes([byte]) for byte in raw]


def _pieces(raw: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(raw):
        size = raw[at]
        at += 1
        if size > 127:
            if at >= len(raw):
                raise ValueError("the tokenizer ends within a length")
            size += (raw[at] - 1) * 128
            at += 1
        if at + size > len(raw):
            raise ValueError("the tokenizer ends within a piece")
        yield raw[at : at + size]
        at += size
