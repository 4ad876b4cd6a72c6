"""One file that all ranks write, byte for byte that of one rank.

A file is a row of segments: text that every rank has, or rows, raw or as base64. It is cut into blocks, and every rank
has a run of them, its file domain: rows are brought there first (``rank_rows``), then each rank writes its own, in
place, into one new file, which takes its name when all of it is on the disk. So no rank needs all of a field, and a
rank that fails, or is killed, leaves what was there before.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from meshloom.errors import UserError
from meshloom.io.files import followed, sync_directory, writing
from meshloom.io.rank_rows import AnyRows, Range, RankRows, even_ranges
from meshloom.mesh.values import as_bytes
from meshloom.process.atomic_write import replacing
from meshloom.process.ranks import agreed, on_root, ranks
from meshloom.records import dataclass

BLOCK = 2**20  # bytes: checksums are those of blocks, and a rank writes and reads whole ones


class Segment(ABC):
    """A part of a file whose bytes ranks bring together."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Bytes in the file."""

    @abstractmethod
    def between(self, ranges: Sequence[Range]) -> bytes | memoryview:
        """The bytes in this rank's own of the ranges of all ranks; all must ask."""


@dataclass(frozen=True, eq=False)
class Text(Segment):
    """Bytes that every rank has."""

    content: bytes

    @property
    def length(self) -> int:
        return len(self.content)

    def between(self, ranges: Sequence[Range]) -> bytes:
        return self.content[slice(*ranges[ranks().rank])]


@dataclass(frozen=True, eq=False)
class Raw(Segment):
    """Rows as they lie in memory."""

    rows: AnyRows

    @property
    def length(self) -> int:
        if isinstance(self.rows, RankRows):
            return self.rows.count * self.rows.row_bytes
        return self.rows.nbytes

    def between(self, ranges: Sequence[Range]) -> memoryview:
        first, last = ranges[ranks().rank]
        if not isinstance(self.rows, RankRows):
            return as_bytes(self.rows).data[first:last]
        each = self.rows.row_bytes
        in_rows = [(low // each, -(-high // each)) if high > low else (0, 0) for low, high in ranges]
        begin = in_rows[ranks().rank][0] * each
        return as_bytes(self.rows.between(in_rows)).data[first - begin : last - begin]


@dataclass(frozen=True, eq=False)
class Base64(Segment):
    """Rows as VTK has them in text: their length as eight bytes, and they themselves, as base64."""

    raw: Raw

    @property
    def length(self) -> int:
        return 4 * -(-(8 + self.raw.length) // 3)

    def between(self, ranges: Sequence[Range]) -> bytes:
        (first, last), size = ranges[ranks().rank], self.raw.length
        head = np.uint64(size).tobytes()
        # Four letters are three bytes; the first eight are those of the length.
        ends = [(3 * (low // 4), min(3 * -(-high // 4), 8 + size)) if high > low else (0, 0) for low, high in ranges]
        in_rows = [(max(low - 8, 0), max(high - 8, 0)) for low, high in ends]
        low, high = ends[ranks().rank]
        text = b64encode(head[low:high] + bytes(self.raw.between(in_rows)))
        return text[first - first // 4 * 4 :][: last - first]


# ----- writing ------------------------------------------------------------------------------------------------------
def write_collectively(
    path: Path, segments: Iterable[Segment], *, reserved: int = 0,
    front: Callable[[Sequence[bytes]], bytes] | None = None,
) -> None:  # fmt: skip
    """Replace ``path`` by segments in one step; all ranks must call it, with the same ones.

    ``front``: the first ``reserved`` bytes of the file, from the checksums of its blocks behind them. The old file
    stays until the new one is complete on the disk. A link stays, and what it leads to is replaced.
    """
    listed = list(segments)
    offsets = np.cumsum([reserved, *(one.length for one in listed)]).tolist()
    domains = _domains(offsets[-1], reserved)
    with _in_one_step(path) as temporary:
        own = _Domain(path, temporary, *domains[ranks().rank], checked=front is not None)
        for segment, (first, last) in zip(listed, pairwise(offsets), strict=True):
            own.write(segment.between([(min(max(low, first), last) - first, min(max(high, first), last) - first)
                                       for low, high in domains]))  # fmt: skip
        if front is not None:
            checksums = [one for part in ranks().allgathered(own.checksums.ended(), "checksums") for one in part]
            if ranks().rank == 0:
                own.write_front(front(checksums))
        agreed(own.close)


@contextmanager
def _in_one_step(path: Path) -> Iterator[Path]:
    """A new file next to a path, for all ranks; at the end of the block, to which all come, it takes the place."""
    with ExitStack() as unfinished, writing(path):

        def begin() -> Path:
            temporary = unfinished.enter_context(replacing(followed(path)))
            open(temporary, "xb").close()
            return temporary

        def finish() -> None:
            unfinished.close()
            sync_directory(temporary.parent)

        temporary = on_root(begin)
        yield temporary
        on_root(finish)


def _domains(end: int, reserved: int) -> list[Range]:
    """The bytes of a file that each rank has: whole blocks, but for the first bytes and the last."""
    first = min(reserved, end)
    return [(min(max(low * BLOCK, first), end), min(max(high * BLOCK, first), end))
            for low, high in even_ranges(-(-end // BLOCK))]  # fmt: skip


class _Domain:
    """The part of a new file that this rank writes, from its first byte on. Whatever fails is raised by ``close``:
    until then other ranks count on this one."""

    def __init__(self, path: Path, temporary: Path, first: int, last: int, *, checked: bool):
        self._path, self._checked, self.checksums = path, checked, Checksums(first)
        self._file: BinaryIO | None = None
        self._failed: Exception | None = None
        if first < last or ranks().rank == 0:
            self._attempt(lambda: self._open(temporary, first))

    def _attempt(self, work: Callable[[], object]) -> None:
        if self._failed is None:
            try:
                work()
            except (OSError, UserError) as error:
                self._failed = error

    def _open(self, temporary: Path, first: int) -> None:
        try:
            self._file = open(temporary, "r+b")  # noqa: SIM115  closed by ``close``
        except FileNotFoundError:
            raise UserError(f"cannot write {self._path}: {temporary.parent} is not the same folder on rank"
                            f" {ranks().rank} as on rank 0; give one that all nodes share") from None  # fmt: skip
        self._file.seek(first)

    def write(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        if self._checked:
            self.checksums.update(data)
        if self._file is not None:
            self._attempt(partial(self._file.write, data))

    def write_front(self, data: bytes) -> None:
        """The first bytes of the file, when all else is written."""
        if self._file is not None:
            self._attempt(partial(self._file.seek, 0))
            self._attempt(partial(self._file.write, data))

    def close(self) -> None:
        """All of it is on the disk, or an error says why not."""
        if self._file is not None:
            with self._file:
                self._attempt(partial(_sync, self._file))
        if self._failed is not None:
            raise self._failed


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


# ----- checksums ----------------------------------------------------------------------------------------------------
class Checksums:
    """SHA-256 of each block of bytes that come one after the other, from a place in a file on."""

    def __init__(self, at: int):
        self._at, self._in_block, self._done, self._block = at, 0, list[bytes](), hashlib.sha256()

    def update(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        left = memoryview(data)
        while len(left):
            part = left[: BLOCK - self._at % BLOCK]
            self._block.update(part)
            self._at, self._in_block, left = self._at + len(part), self._in_block + len(part), left[len(part) :]
            if self._at % BLOCK == 0:
                self._end()

    def _end(self) -> None:
        self._done.append(self._block.digest())
        self._in_block, self._block = 0, hashlib.sha256()

    def ended(self) -> list[bytes]:
        """Those of all blocks; no more bytes come."""
        if self._in_block:
            self._end()
        return self._done


def checksums_of(file: BinaryIO, reserved: int) -> list[bytes]:
    """Those of the blocks of an open file behind its first bytes, of which every rank reads some; all must ask."""

    def own() -> list[bytes]:
        first, last = _domains(os.fstat(file.fileno()).st_size, reserved)[ranks().rank]
        found = Checksums(first)
        file.seek(first)
        while left := last - file.tell():
            if not (data := file.read(min(BLOCK, left))):
                break  # somebody makes it shorter
            found.update(data)
        return found.ended()

    return [one for part in ranks().allgathered(agreed(own), "checksums") for one in part]
