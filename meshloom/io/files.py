"""Writing files so that nothing is ever lost: next to the target first, then renamed over it.

Links are followed, and what is no regular file stays what it is: a UserError says so. Every failure of the file system
becomes one RunError that names the file and the reason.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from meshloom.errors import RunError, UserError, kind_of_file
from meshloom.process.atomic_write import replacing
from meshloom.process.ranks import by_root

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError of the body into a RunError such as ``cannot write run/monitors.csv: disk full``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        full = f"disk full ({reason})" if error.errno in _FULL else reason
        raise RunError(f"cannot write {path}: {full}") from error


@by_root
def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Replace ``path`` by ``data`` in one step: readers see the old file or the new one, never half of it. All ranks
    call it, and the root writes.

    The old file stays until the new one is complete on the disk. A link stays, and what it leads to is replaced.
    """
    write_own(path, data)


def write_own(path: Path, data: bytes | memoryview) -> None:
    """The same for a file that this rank alone writes."""
    with writing(path):
        place = followed(path)
        with replacing(place) as temporary, open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(place.parent)


def followed(path: Path) -> Path:
    """Where the file lies that a path leads to, or would lie; UserError where something is there that is no file.

    A rename over a link would leave the file that it leads to as it was, and one over a pipe or a device would take
    that away from everybody else.
    """
    try:
        what = kind_of_file(os.stat(path).st_mode)
    except FileNotFoundError:  # nor is what a link leads to: it is made there
        what = ""
    if what:
        leads = " leads to" if path.is_symlink() else " is"
        raise UserError(f"cannot write {path}: it{leads} {what}, not a file; give the name of a file")
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def sync_directory(directory: Path) -> None:
    """Make the rename itself durable, where the system lets a directory be synchronised."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
