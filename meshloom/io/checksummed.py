"""HDF5 files that are whole or refused.

A damaged file can keep HDF5's library busy for ever, or crash it, so it is not asked before the file is known to be
whole: in front stands a checksum, the SHA-256 of what follows it, in the block that HDF5 leaves to users. Other
programs read such a file as any other.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from meshloom.errors import UserError, other_than_file
from meshloom.io.files import write_atomically
from meshloom.process.ranks import by_root

_SAFE = " !\"#$&'()*+,:;<=>?@[\\]^`{|}"  # as it is in the name of a dataset, with letters, digits and "_.-~"
_EMPTY = "%"
_TAG = b"meshloom checkpoint, sha256 "
_BLOCK = 512  # bytes of HDF5's user block, in which the checksum stands
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


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


@by_root
def write_checksummed(path: Path, fill: Callable[[Any], None]) -> None:
    """Write what ``fill(file)`` puts into an open HDF5 file, in one step; what was there stays until then.

    The file is put together in memory, because a disk that fills up while HDF5 writes leaves its library
    with a file it can neither finish nor close.
    """
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=_BLOCK) as file:
        fill(file)
    content = buffer.getbuffer()
    content[:_BLOCK] = _checksum_block(content[_BLOCK:])
    write_atomically(path, content)


@contextmanager
def checksummed_file(path: Path, kind: FileKind) -> Iterator[Any]:
    """The open HDF5 file; UserError in one line when it is missing, damaged or something else, which a KeyError or the
    like inside the block means."""
    import h5py

    if what := other_than_file(path):
        raise UserError(f"{path}: it is {what}, not a {kind.name} file")
    if not os.path.isfile(path):  # of a Path, it fails for names that are too long
        raise UserError(f"{path}: no such {kind.name} file")
    try:
        _check_whole(path, kind)
        with h5py.File(path, "r") as file:
            yield file
    except UserError:
        raise
    except (OSError, RuntimeError) as error:
        how = "truncated" if "truncated" in str(error) else "damaged"
        raise UserError(f"{path}: {how} {kind.name}; {kind.damaged}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: an HDF5 file, but not a Meshloom {kind.name}; {kind.right}") from error


def _checksum_block(body: bytes | memoryview) -> bytes:
    """The first block of a file whose other blocks are ``body``."""
    return (_TAG + hashlib.sha256(body).hexdigest().encode() + b"\n").ljust(_BLOCK, b"\0")


def _check_whole(path: Path, kind: FileKind) -> None:
    """UserError unless the file is whole; files of before there were checksums begin with HDF5's signature."""
    content = memoryview(path.read_bytes())
    if bytes(content[:_BLOCK]) == _checksum_block(content[_BLOCK:]) or bytes(content[: len(_SIGNATURE)]) == _SIGNATURE:
        return
    if bytes(content[: len(_TAG)]) == _TAG:
        raise UserError(f"{path}: damaged or truncated {kind.name}; {kind.damaged}")
    raise UserError(f"{path}: not a {kind.name}, or damaged from its first byte on; {kind.right}")
