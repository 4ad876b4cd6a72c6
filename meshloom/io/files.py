"""Writing files so that nothing is ever lost: beside the target first, then renamed over it.

Every failure of the file system becomes one RunError that names the file and the reason.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from meshloom.errors import RunError
from meshloom.process.beside import replacing

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


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Replace ``path`` by ``data`` in one step: readers see the old file or the new one, never half of it.

    The old file stays until the new one is complete on the disk.
    """
    with writing(path):
        with replacing(path) as beside, open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the rename itself durable, where the system lets a directory be synchronised."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
