"""Rows and files of several ranks, without any: every rank's part is computed in turn, and what it sends is kept for
the others."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from meshloom.io import collective, rank_rows
from meshloom.io.collective import Base64, Checksums, Raw, Text, write_collectively
from meshloom.io.rank_rows import RankRows, even_ranges
from meshloom.process.ranks import OneProcess

T = TypeVar("T")


class Waits(Exception):
    """For what other ranks have not sent yet."""


class InTurn(OneProcess):
    """A rank of several. ``rounds``: what all have sent to each other so far, by round, sender and receiver."""

    def __init__(self, rank: int, size: int, rounds: list[list[Sequence[np.ndarray]]]):
        self.rank, self.size, self._rounds, self._next = rank, size, rounds, 0

    def all_to_all(self, parts: Sequence[np.ndarray], what: str = "rows") -> list[np.ndarray]:
        if self._next == len(self._rounds):
            raise Waits(parts)
        self._next += 1
        return [sent[self.rank] for sent in self._rounds[self._next - 1]]


@contextmanager
def being(one: InTurn, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        for module in (rank_rows, collective):
            patched.setattr(module, "ranks", lambda: one)
        yield


def on_ranks(size: int, work: Callable[[int], T], monkeypatch: pytest.MonkeyPatch) -> list[T]:
    """What ``work(rank)`` gives on each rank."""
    rounds: list[list[Sequence[np.ndarray]]] = []
    while True:
        found, sent = list[T](), list[Sequence[np.ndarray]]()
        for rank in range(size):
            try:
                with being(InTurn(rank, size, rounds), monkeypatch):
                    found.append(work(rank))
            except Waits as waiting:
                sent.append(waiting.args[0])
        assert not (found and sent), "all ranks make the same calls"
        if not sent:
            return found
        rounds.append(sent)


def cut(values: np.ndarray, size: int, seed: int) -> list[RankRows]:
    """The rows of every rank, in no order; some are on two, and ranks may have none."""
    dice = np.random.default_rng(seed)
    owner = dice.integers(0, size, len(values)) * (dice.random() < 0.8)
    both = dice.random(len(values)) < 0.1
    found = []
    for rank in range(size):
        numbers = dice.permutation(np.flatnonzero((owner == rank) | (both & (rank == size - 1))))
        found.append(RankRows(len(values), numbers, values[numbers]))
    return found


CASES = pytest.mark.parametrize(("size", "shape", "dtype"), [
    (1, (7,), "f8"), (2, (40, 3), "f8"), (3, (11, 2, 2), "f4"), (4, (3,), "i4"), (5, (64,), "i8"), (3, (0, 2), "f8"),
])  # fmt: skip


def some(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(0.0, 1e6, shape).astype(dtype)


@CASES
def test_rows_come_to_who_needs_them(
    monkeypatch: pytest.MonkeyPatch, size: int, shape: tuple[int, ...], dtype: str
) -> None:
    values = some(shape, dtype)
    parts = cut(values, size, 3)
    count = 9 if len(values) else 0
    wanted = [np.random.default_rng(rank).integers(0, max(len(values), 1), count) for rank in range(size)]

    def ask(rank: int) -> tuple[np.ndarray, ...]:
        mine = parts[rank]
        return (mine.gathered(), mine.on_root(), mine.between(even_ranges(len(values))), mine.at(wanted[rank]),
                mine.taken(wanted[0]).gathered(), mine.followed_by(mine.taken(wanted[0])).gathered())  # fmt: skip

    found = on_ranks(size, ask, monkeypatch)
    for rank, (everything, on_root, _, asked, taken, joined) in enumerate(found):
        assert everything.dtype == values.dtype
        np.testing.assert_array_equal(everything, values)
        np.testing.assert_array_equal(on_root, values if rank == 0 else values[:0])
        np.testing.assert_array_equal(asked, values[wanted[rank]])
        np.testing.assert_array_equal(taken, values[wanted[0]])
        np.testing.assert_array_equal(joined, np.concatenate((values, values[wanted[0]])))
    np.testing.assert_array_equal(np.concatenate([own for _, _, own, *_ in found]), values)


@CASES
@pytest.mark.parametrize("block", [1, 5, 24, 1000])
def test_parts_of_a_file_are_those_of_one_rank(
    monkeypatch: pytest.MonkeyPatch, size: int, shape: tuple[int, ...], dtype: str, block: int
) -> None:
    monkeypatch.setattr(collective, "BLOCK", block)
    values, parts = some(shape, dtype), cut(some(shape, dtype), size, block)
    text = b64encode(np.uint64(values.nbytes).tobytes() + values.tobytes())
    expected = b"<head>" + values.tobytes() + text

    def segments(rows: Any) -> list[Any]:
        return [Text(b"<head>"), Raw(rows), Base64(Raw(rows)), Base64(Raw(values))]

    def part(rank: int) -> bytes:
        found, first = b"", 0
        domains = collective._domains(len(expected + text), 0)
        for one in segments(parts[rank]):
            ends = [[min(max(end - first, 0), one.length) for end in domain] for domain in domains]
            found += bytes(one.between(ends))
            first += one.length
        assert len(found) == domains[rank][1] - domains[rank][0]
        return found

    assert b"".join(on_ranks(size, part, monkeypatch)) == expected + text


def test_checksums_are_those_of_blocks_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(collective, "BLOCK", 16)
    data = bytes(range(50))
    expected = [hashlib.sha256(data[first:last]).digest() for first, last in ((5, 16), (16, 32), (32, 48), (48, 50))]
    for pieces in ([data[5:]], [data[5:6], data[6:33], b"", data[33:]], [bytes([one]) for one in data[5:]]):
        found = Checksums(5)
        for one in pieces:
            found.update(one)
        assert found.ended() == expected
    seen: list[Sequence[bytes]] = []

    def front(checksums: Sequence[bytes]) -> bytes:
        seen.append(checksums)
        return data[:5]

    write_collectively(tmp_path / "a", [Text(data[5:20]), Text(data[20:])], reserved=5, front=front)
    assert seen == [expected] and (tmp_path / "a").read_bytes() == data
    with open(tmp_path / "a", "rb") as file:
        assert collective.checksums_of(file, 5) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(("end", "reserved"), [(0, 0), (3, 4), (4, 4), (5, 4), (16, 4), (17, 4), (400, 4), (400, 40)])
def test_every_byte_has_one_rank(monkeypatch: pytest.MonkeyPatch, size: int, end: int, reserved: int) -> None:
    monkeypatch.setattr(collective, "BLOCK", 16)
    with being(InTurn(0, size, []), monkeypatch):
        domains = collective._domains(end, reserved)
    begins = [first for first, _ in domains]
    assert [*begins, end] == [min(reserved, end), *(last for _, last in domains)], "one behind the other"
    assert all(first % 16 == 0 or first in (reserved, end) for first in begins)
