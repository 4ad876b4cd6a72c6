"""HDF5 files that are whole or refused.

A damaged file can keep HDF5's library busy for ever, or crash it, so it is not asked before the file is known to be
whole: in front stands a checksum, the SHA-256 of those of its blocks, in the block that HDF5 leaves to users. Other
programs read such a file as any other. Files of earlier versions have the SHA-256 of all that follows, or none.

Of several ranks the root lays out the file, with room for the rows of every dataset in one piece; then all write theirs
(``collective``), and each reads a range of the rows of every dataset.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import numpy as np

from meshloom.errors import UserError, other_than_file
from meshloom.io.collective import Raw, Segment, Text, checksums_of, write_collectively
from meshloom.io.rank_rows import AnyRows, RankRows, even_ranges
from meshloom.process.ranks import agreed, on_root, ranks
from meshloom.records import dataclass

T = TypeVar("T")
_SAFE = " !\"#$&'()*+,:;<=>?@[\\]^`{|}"  # as it is in the name of a dataset, with letters, digits and "_.-~"
_EMPTY = "%"
_TAG = b"meshloom checkpoint, sha256 "
_OF_BLOCKS = b"of blocks "  # behind the tag, where it is that of their checksums
_BLOCK = 512  # bytes of HDF5's user block, in which the checksum stands
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_PAGE = 4096  # bytes


@dataclass(frozen=True)
class FileKind:
    """What a file is to a person: ``name``, what to do where it is ``damaged``, and where the right one is."""

    name: str  # "checkpoint"
    damaged: str  # "use an earlier one"
    right: str  # "take checkpoint.h5 of a run"


def stored_name(name: str) -> str:
    """A name as HDF5 takes it for one of a dataset, whatever is in it; an ordinary one is itself."""
    text = quote(name, safe=_SAFE, errors="surrogatepass")
    return text.replace(".", "%2E") if text.strip(".") == "" and text else text or _EMPTY


def restored_name(stored: str) -> str:
    """The name that was stored."""
    return "" if stored == _EMPTY else unquote(stored, errors="surrogatepass")


# ----- writing ------------------------------------------------------------------------------------------------------
def write_checksummed(path: Path, arrays: Mapping[str, AnyRows], fill: Callable[[Any], None]) -> None:
    """Write rows as datasets by their names, and what ``fill(file)`` puts next to them into an open HDF5 file, in one
    step; what was there stays until then. All ranks must call it; ``fill`` is the root's business."""
    parts = on_root(lambda: _laid_out(arrays, fill))
    segments: list[Segment] = [Text(one) if isinstance(one, bytes) else Raw(arrays[one]) for one in parts]
    write_collectively(path, segments, reserved=_BLOCK, front=_front)


def _laid_out(arrays: Mapping[str, AnyRows], fill: Callable[[Any], None]) -> list[bytes | str]:
    """The file behind its first block, piece by piece: bytes, or the name of an array whose rows stand there."""
    import h5py

    content, places = _Layout(), dict[str, tuple[int, int]]()
    in_one_piece = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    in_one_piece.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    in_one_piece.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(content, "w", userblock_size=_BLOCK) as file:
        for name, rows in arrays.items():
            if isinstance(rows, np.ndarray) and (rows.ndim == 0 or rows.size == 0):  # HDF5 leaves no room for these
                file.create_dataset(name, data=rows)
                continue
            made = file.create_dataset(name, rows.shape, rows.dtype, dcpl=in_one_piece)
            if made.size:
                places[name] = made.id.get_offset(), Raw(rows).length
        fill(file)
    found, at = list[bytes | str](), _BLOCK
    for name, (first, length) in sorted(places.items(), key=lambda one: one[1]):
        found += [content.between(at, first), name]
        at = first + length
    return [*found, content.between(at, content.size)]


class _Layout(io.RawIOBase):
    """A file in memory of which only those pages exist that somebody has written to. HDF5 does not write to the disk
    itself: one that fills up meanwhile leaves its library with a file that it can neither finish nor close."""

    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[int, bytearray] = {}
        self._at = self.size = 0

    def seekable(self) -> bool:
        return True

    readable = writable = seekable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self.size = self._at if size is None else size
        return self.size

    def _parts(self, length: int) -> Iterator[tuple[int, slice, slice]]:
        """From here on: a page, a part of it, and the part of what is read or written that is there."""
        done = 0
        while done < length:
            page, first = divmod(self._at, _PAGE)
            count = min(_PAGE - first, length - done)
            yield page, slice(first, first + count), slice(done, done + count)
            self._at, done = self._at + count, done + count

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for page, there, here in self._parts(len(view)):
            self._pages.setdefault(page, bytearray(_PAGE))[there] = view[here]
        self.size = max(self.size, self._at)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        for page, there, here in self._parts(len(view)):
            view[here] = self._pages.get(page, bytes(_PAGE))[there]
        return len(view)

    def between(self, first: int, last: int) -> bytes:
        """What stands there; nothing is zero."""
        self.seek(first)
        found = bytearray(last - first)
        self.readinto(found)
        return bytes(found)


# ----- reading ------------------------------------------------------------------------------------------------------
def read_checksummed(path: Path, kind: FileKind, read: Callable[[Any], T]) -> T:
    """What ``read(file)`` finds in the open HDF5 file, on every rank; all must call it. UserError in one line when the
    file is missing, damaged or something else, which a KeyError or the like of ``read`` means."""

    with ExitStack() as opened:
        with _refusals(path, kind):
            content, first_block = _opened(path, kind, opened)
            _check_intact(path, content, first_block, kind)

        def found() -> T:
            import h5py

            with _refusals(path, kind), h5py.File(content, "r") as file:
                return read(file)

        return agreed(found)


def _opened(path: Path, kind: FileKind, until: ExitStack) -> tuple[io.BufferedReader, bytes]:
    """A file, open for as long as that, and its first block. All that is asked of it is asked of this: somebody may put
    another one in its place meanwhile, so that a rank may find the new one where another has found the old one."""

    def here() -> tuple[io.BufferedReader, bytes]:
        if what := other_than_file(path):
            raise UserError(f"{path}: it is {what}, not a {kind.name} file")
        if not os.path.isfile(path):  # of a Path, it fails for names that are too long
            raise UserError(f"{path}: no such {kind.name} file")
        try:
            content = until.enter_context(open(path, "rb"))  # noqa: SIM115
            return content, content.read(_BLOCK)
        except OSError as error:  # it may be whole: nothing was seen of it
            raise UserError(f"{path}: it cannot be read: {error.strerror or error}") from error

    for _ in range(2):
        content, first_block = agreed(here, lambda rank, error: UserError(f"rank {rank}: {error}"))
        if len(set(ranks().allgathered(first_block, "first blocks"))) == 1:
            return content, first_block
    raise UserError(f"{path}: ranks find different files there; give a folder that all nodes share")


@contextmanager
def _refusals(path: Path, kind: FileKind) -> Iterator[None]:
    """Whatever goes wrong with a file in the block as a UserError."""
    try:
        yield
    except UserError:
        raise
    except (OSError, RuntimeError) as error:
        how = "truncated" if "truncated" in str(error) else "damaged"
        raise UserError(f"{path}: {how} {kind.name}; {kind.damaged}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: an HDF5 file, but not a Meshloom {kind.name}; {kind.right}") from error


def read_rows(dataset: Any) -> AnyRows:
    """The rows of a dataset; of several ranks each has a range of them. No other rank is asked."""
    if ranks().size == 1 or dataset.ndim == 0:
        return np.asarray(dataset[()])
    first, last = even_ranges(len(dataset))[ranks().rank]
    return RankRows(len(dataset), np.arange(first, last), np.asarray(dataset[first:last]))


def _front(checksums: Sequence[bytes]) -> bytes:
    """The first block of a file whose other blocks have these checksums."""
    return _first_block(_TAG + _OF_BLOCKS, hashlib.sha256(b"".join(checksums)).hexdigest())


def _first_block(tag: bytes, checksum: str) -> bytes:
    return (tag + checksum.encode() + b"\n").ljust(_BLOCK, b"\0")


def _check_intact(path: Path, content: io.BufferedReader, found: bytes, kind: FileKind) -> None:
    """UserError unless the open file with this first block is whole; all ranks must ask. Files of before there were
    checksums begin with HDF5's signature."""
    if found.startswith(_SIGNATURE):
        return
    if found.startswith(_TAG + _OF_BLOCKS):
        expected = _front(checksums_of(content, _BLOCK))
    elif found.startswith(_TAG):
        expected = on_root(lambda: _first_block(_TAG, _checksum_behind(content)))
    else:
        raise UserError(f"{path}: not a {kind.name}, or damaged from its first byte on; {kind.right}")
    if found != expected:
        raise UserError(f"{path}: damaged or truncated {kind.name}; {kind.damaged}")


def _checksum_behind(content: io.BufferedReader) -> str:
    """SHA-256 of all that follows the first block, as earlier versions have it there."""
    content.seek(_BLOCK)
    return hashlib.file_digest(content, "sha256").hexdigest()
