"""Checkpoints in HDF5: everything a run needs to go on, exactly as it was in memory.

Layout of the file: attributes ``format``, ``case``, ``iteration``, ``precision``, ``mesh`` (digest) and ``config``
(TOML); the group ``state`` with one dataset (n, dim) per field, in the numbering the user gave the mesh; the dataset
``monitors`` (iteration, names) with attribute ``names``, or next to it the dataset ``monitor_names`` where they are
more than an attribute holds. Files of earlier versions have the attribute ``sha256``, too, of what was written.

In front stands a checksum (``checksummed``): a damaged file is refused before HDF5 sees it. A file knows nothing of
ranks: all write it, each its own rows, and it is that of one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import UserError
from meshloom.io.checksummed import (
    FileKind,
    read_checksummed,
    read_rows,
    restored_name,
    stored_name,
    write_checksummed,
)
from meshloom.io.rank_rows import AnyRows, on_every_rank
from meshloom.records import dataclass

FORMAT = 1
_KIND = FileKind("checkpoint", "use an earlier one", "take checkpoint.h5 of a run")
_NAMES = "monitor_names"
_MOST_IN_ATTRIBUTE = 4000  # names; it has 64 kB for references of 16 bytes


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after ``iteration`` iterations."""

    case: str
    iteration: int
    precision: str  # "double" | "single"
    mesh: str  # digest of the mesh in the user's numbering
    config: str  # the whole configuration as TOML
    state: Mapping[str, AnyRows]  # field name -> (n, dim) values in the user's numbering
    monitor_names: tuple[str, ...]
    monitors: np.ndarray  # (iteration, names) float64

    def digest(self) -> str:
        """SHA-256 of all of it: what is read back must be what was written. All ranks must ask."""
        head = (self.case, self.iteration, self.precision, self.mesh, self.config, self.monitor_names)
        found = hashlib.sha256(repr(head).encode())
        for name, rows in [*sorted(self.state.items()), ("monitors", self.monitors)]:
            values = on_every_rank(rows)
            found.update(f"{name} {values.shape} {values.dtype.str}".encode(errors="surrogatepass"))
            found.update(np.ascontiguousarray(values).data)
        return found.hexdigest()


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint in one step; the previous one stays until the new one is on the disk. All ranks must call
    it."""
    arrays = {f"state/{stored_name(name)}": rows for name, rows in checkpoint.state.items()}
    arrays["monitors"] = checkpoint.monitors
    write_checksummed(path, arrays, lambda file: _fill(file, checkpoint))


def _fill(file: Any, checkpoint: Checkpoint) -> None:
    import h5py

    file.attrs.update(
        format=FORMAT,
        case=checkpoint.case,
        iteration=checkpoint.iteration,
        precision=checkpoint.precision,
        mesh=checkpoint.mesh,
        config=checkpoint.config,
    )
    file.require_group("state")
    names = [stored_name(name) for name in checkpoint.monitor_names]
    if 0 < len(names) <= _MOST_IN_ATTRIBUTE:
        file["monitors"].attrs["names"] = names
    else:
        file.create_dataset(_NAMES, data=names, dtype=h5py.string_dtype())


def load(path: Path) -> Checkpoint:
    """Read a checkpoint back; UserError in one line when it is missing, damaged or something else. All ranks must call
    it, and each has a range of the rows."""
    checkpoint, written = read_checksummed(path, _KIND, lambda file: _read(path, file))
    if written and checkpoint.digest() != written:
        raise UserError(f"{path}: damaged checkpoint: its content does not match its checksum; use an earlier one")
    return checkpoint


def _read(path: Path, file: Any) -> tuple[Checkpoint, str]:
    """The checkpoint in an open HDF5 file, and its digest, if it has one; KeyError, TypeError or ValueError when
    something is missing."""
    version = int(file.attrs["format"])
    if version != FORMAT:
        raise UserError(f"{path}: checkpoint of format {version}, this Meshloom reads format {FORMAT}")
    iteration = int(file.attrs["iteration"])
    stored = file[_NAMES].asstr()[...] if _NAMES in file else file["monitors"].attrs["names"]
    names = tuple(restored_name(str(name)) for name in stored)
    monitors = file["monitors"][...]
    if monitors.shape != (iteration, len(names)):
        raise ValueError("monitors do not fit the iteration")
    found = Checkpoint(
        case=str(file.attrs["case"]),
        iteration=iteration,
        precision=str(file.attrs["precision"]),
        mesh=str(file.attrs["mesh"]),
        config=str(file.attrs["config"]),
        state={restored_name(name): read_rows(rows) for name, rows in file["state"].items()},
        monitor_names=names,
        monitors=monitors,
    )
    return found, str(file.attrs.get("sha256", ""))
