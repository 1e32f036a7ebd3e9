"""A text as a bag of hashed words and pairs of neighbouring words. Free of torch."""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final
from zlib import crc32

BUCKETS: Final = 1 << 17
"""Features are hashed into so many: the model's size does not grow with what people say."""
MAX_WORDS: Final = 2_048
"""Words of a text that are looked at, from its start."""
WORD: Final = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def words_of(text: str) -> list[str]:
    """Lower case, without punctuation: what a transcript and a written sentence have in common."""
    return WORD.findall(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))[:MAX_WORDS]


def buckets_of(text: str) -> list[int]:
    """Distinct buckets of the text's words and word pairs, ascending."""
    words = words_of(text)
    return sorted(set(_hashed(words)) | set(_hashed(f"{first} {second}" for first, second in pairwise(words))))


def _hashed(features: Iterable[str]) -> Iterable[int]:
    return (crc32(feature.encode()) % BUCKETS for feature in features)
