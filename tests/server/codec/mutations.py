"""Bytes gone wrong in every way that is cheap to make: the same ones for a seed."""

import random
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes, bytes], bytes]
"""(random, bytes, other bytes) to bytes."""


def flipped_bits(source: random.Random, data: bytes, other: bytes) -> bytes:
    """A few bits, anywhere."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 12)):
        changed[source.randrange(len(changed))] ^= 1 << source.randrange(8)
    return bytes(changed)


def damaged_header(source: random.Random, data: bytes, other: bytes) -> bytes:
    """Bytes of the first few hundred, where formats keep their sizes and counts."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 6)):
        value = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
        changed[source.randrange(min(400, len(changed)))] = value
    return bytes(changed)


def overwritten_run(source: random.Random, data: bytes, other: bytes) -> bytes:
    """A run of noise, zeros or ones."""
    start, length = source.randrange(len(data)), source.randint(1, 3000)
    run = source.choice((source.randbytes(length), bytes(length), b"\xff" * length))
    return data[:start] + run + data[start + length :]


def removed_run(source: random.Random, data: bytes, other: bytes) -> bytes:
    """Bytes lost."""
    start = source.randrange(len(data))
    return data[:start] + data[start + source.randint(1, 2000) :]


def repeated_run(source: random.Random, data: bytes, other: bytes) -> bytes:
    """Bytes sent twice."""
    start = source.randrange(len(data))
    end = start + source.randint(1, 4000)
    return data[:end] + data[start:end] + data[end:]


def cut_off(source: random.Random, data: bytes, other: bytes) -> bytes:
    """The end is missing."""
    return data[: source.randrange(1, len(data))]


def joined(source: random.Random, data: bytes, other: bytes) -> bytes:
    """One file goes on as another."""
    return data[: source.randrange(1, len(data))] + other[source.randrange(len(other)) :]


def noise_after_magic(source: random.Random, data: bytes, other: bytes) -> bytes:
    """Only the first bytes are what they say."""
    return data[: source.randint(4, 64)] + source.randbytes(source.randint(1, 20_000))


MUTATIONS: tuple[Mutation, ...] = (
    flipped_bits,
    damaged_header,
    overwritten_run,
    removed_run,
    repeated_run,
    cut_off,
    joined,
    noise_after_magic,
)


def mutated(seed: int, data: bytes, other: bytes) -> bytes:
    """``data`` after one to three mutations; at least one byte is left."""
    source = random.Random(seed)
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        data = source.choice(MUTATIONS)(source, data, other) or b"\x00"
    return data
