"""A partition of the cells of a mesh that a person has given as a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from meshloom.errors import ConfigError, PartitionError, UserError
from meshloom.process.ranks import agreed


def read_partition(path: Path, named: str) -> np.ndarray:
    """The rank of every cell by number, as a file of ``numpy.save`` has it; UserError, which begins with how the file
    was ``named``, where it holds none. All ranks must ask."""

    def read() -> np.ndarray:
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)  # in memory once for all ranks of a node
        except (OSError, ValueError, EOFError) as error:
            known = isinstance(error, OSError) and error.strerror
            raise UserError(f"{named}{path}: cannot be read: {known or 'it is no NumPy file of an array'}") from None
        if not isinstance(found, np.ndarray):
            raise UserError(f"{named}{path}: holds several arrays; write one with numpy.save")
        return found

    return agreed(read)


@contextmanager
def naming_partition(said: str) -> Iterator[None]:
    """What is wrong with a partition is told with what ``run.partition`` says."""
    try:
        yield
    except PartitionError as error:
        raise ConfigError(f"run.partition = {said}: {error}") from None
