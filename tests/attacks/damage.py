"""Ways to damage a file: what every campaign that is about files draws from."""

from __future__ import annotations

import random
from collections.abc import Callable


def flipped(dice: random.Random, data: bytes) -> bytes:
    """Some bits turned over."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8, 64))):
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def cut(dice: random.Random, data: bytes) -> bytes:
    """The front of it."""
    return data[: dice.randrange(len(data))]


def holed(dice: random.Random, data: bytes) -> bytes:
    """A piece out of the middle."""
    begin = dice.randrange(len(data))
    return data[:begin] + data[begin + dice.randint(1, max(1, len(data) // 4)) :]


def doubled(dice: random.Random, data: bytes) -> bytes:
    """A piece twice."""
    begin, end = sorted(dice.randrange(len(data)) for _ in range(2))
    return data[:end] + data[begin:end] + data[end:]


def zeroed(dice: random.Random, data: bytes) -> bytes:
    """A piece of zeros, as a crash of the system leaves it."""
    begin, end = sorted(dice.randrange(len(data)) for _ in range(2))
    return data[:begin] + bytes(end - begin) + data[end:]


def longer(dice: random.Random, data: bytes) -> bytes:
    """Something behind it."""
    return data + dice.randbytes(dice.randint(1, 2000))


WAYS: tuple[Callable[[random.Random, bytes], bytes], ...] = (flipped, cut, holed, doubled, zeroed, longer)


def damaged(dice: random.Random, data: bytes) -> bytes:
    """Other bytes than ``data``, in one way or two."""
    found = data
    while found == data:
        for _ in range(dice.choice((1, 1, 2))):
            found = dice.choice(WAYS)(dice, found) if found else found
    return found
