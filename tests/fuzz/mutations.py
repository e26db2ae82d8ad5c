"""Changes of bytes that parsers get wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

MAX_STEPS = 5
MAX_INPUT_BYTES = 16 * 1024

BYTES = b"\x00\x01\x07\t\n\r \"#%&'*+,-./0179:;<=>?@AZ[\\]_`az{|}~\x7f\x80\xbf\xc3\xff"
NUMBERS = [
    *(b"0", b"-1", b"1", b"00", b"127", b"255", b"256", b"65536", b"2147483648", b"4294967296"),
    *(b"9223372036854775807", b"-9223372036854775809", b"18446744073709551616", b"1e999", b"1e-9"),
    *(b"0.1", b"-0", b"077777777777", b"1" * 30, b"9" * 320, b"9" * 4400, b"NaN", b"-Infinity"),
]
_NUMBER = re.compile(rb"-?[0-9]+")

Change = Callable[[Random, bytearray, bytes, Sequence[bytes]], bytearray]


def mutated(rng: Random, base: bytes, other: bytes, tokens: Sequence[bytes]) -> bytes:
    """Return an input with some random changes, at most ``MAX_INPUT_BYTES`` long.

    Args:
        rng: Decides everything.
        base: What is changed.
        other: Gives pieces.
        tokens: Words of the format.
    """
    data = bytearray(base)
    for _ in range(rng.choice([1, 1, 1, 2, 3, MAX_STEPS])):
        data = rng.choice(CHANGES)(rng, data, other, tokens)
        del data[MAX_INPUT_BYTES:]
    return bytes(data)


def span(rng: Random, size: int) -> tuple[int, int]:
    """Return a random part, mostly a short one."""
    first = rng.randint(0, size)
    return first, min(size, first + rng.choice([1, 2, 4, 8, 16, 64, 512, size]))


def flip(rng: Random, data: bytearray, _other: bytes, _tokens: Sequence[bytes]) -> bytearray:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def put(rng: Random, data: bytearray, _other: bytes, _tokens: Sequence[bytes]) -> bytearray:
    if data:
        data[rng.randrange(len(data))] = rng.choice([rng.choice(BYTES), rng.randrange(256)])
    return data


def drop(rng: Random, data: bytearray, _other: bytes, _tokens: Sequence[bytes]) -> bytearray:
    first, end = span(rng, len(data))
    del data[first:end]
    return data


def double(rng: Random, data: bytearray, _other: bytes, _tokens: Sequence[bytes]) -> bytearray:
    first, end = span(rng, len(data))
    data[end:end] = bytes(data[first:end]) * rng.choice([1, 1, 2, 7, 200])
    return data


def insert(rng: Random, data: bytearray, _other: bytes, tokens: Sequence[bytes]) -> bytearray:
    first, _ = span(rng, len(data))
    data[first:first] = rng.choice(tokens) if tokens else bytes([rng.choice(BYTES)])
    return data


def overwrite(rng: Random, data: bytearray, _other: bytes, tokens: Sequence[bytes]) -> bytearray:
    first, end = span(rng, len(data))
    word = rng.choice(tokens) if tokens else bytes([rng.choice(BYTES)])
    data[first : first + len(word) if rng.random() < 0.5 else end] = word
    return data


def splice(rng: Random, data: bytearray, other: bytes, _tokens: Sequence[bytes]) -> bytearray:
    first, end = span(rng, len(data))
    begin, stop = span(rng, len(other))
    data[first:end] = other[begin:stop]
    return data


def number(rng: Random, data: bytearray, _other: bytes, _tokens: Sequence[bytes]) -> bytearray:
    found = list(_NUMBER.finditer(bytes(data)))
    if found:
        match = rng.choice(found)
        data[match.start() : match.end()] = rng.choice(NUMBERS)
    return data


def cut(rng: Random, data: bytearray, _other: bytes, _tokens: Sequence[bytes]) -> bytearray:
    return data[: rng.randint(0, len(data))]


def lines(rng: Random, data: bytearray, other: bytes, _tokens: Sequence[bytes]) -> bytearray:
    """Remove, repeat, move or import a line."""
    found = bytes(data).split(b"\n")
    first, second = rng.randrange(len(found)), rng.randrange(len(found))
    match rng.randrange(4):
        case 0:
            del found[first]
        case 1:
            found.insert(second, found[first])
        case 2:
            found[first], found[second] = found[second], found[first]
        case _:
            found.insert(second, rng.choice(other.split(b"\n")))
    return bytearray(b"\n".join(found))


CHANGES: Sequence[Change] = (
    *(flip, flip, put, put, drop, double, insert, insert, overwrite),
    *(splice, number, number, cut, lines, lines),
)
