"""Checkpoints in HDF5: everything a run needs to go on, exactly as it was in memory.

Layout of the file: attributes ``format``, ``case``, ``iteration``, ``precision``, ``mesh`` (digest),
``config`` (TOML) and ``sha256``; the group ``state`` with one dataset (n, dim) per field, in the numbering the
user gave the mesh; the dataset ``monitors`` (iteration, names) with attribute ``names``, or beside it the dataset
``monitor_names`` where they are more than an attribute holds.

A damaged file can keep HDF5's library busy for ever, or crash it, so it is not asked before the file is known to be
whole: in front stands a seal, the SHA-256 of what follows it, in the block that HDF5 leaves to users.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from meshloom.errors import UserError
from meshloom.io.files import write_atomically

FORMAT = 1
_KEPT = " !\"#$&'()*+,:;<=>?@[\\]^`{|}"  # as it is in the name of a dataset, with letters, digits and "_.-~"
_EMPTY = "%"
_SEAL = b"meshloom checkpoint, sha256 "
_BLOCK = 512  # bytes of HDF5's user block, in which the seal stands
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
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
    state: dict[str, np.ndarray]  # field name -> (n, dim) values in the user's numbering
    monitor_names: tuple[str, ...]
    monitors: np.ndarray  # (iteration, names) float64

    def digest(self) -> str:
        """SHA-256 of all of it: what is read back must be what was written."""
        head = (self.case, self.iteration, self.precision, self.mesh, self.config, self.monitor_names)
        found = hashlib.sha256(repr(head).encode())
        for name, values in [*sorted(self.state.items()), ("monitors", self.monitors)]:
            found.update(f"{name} {values.shape} {values.dtype.str}".encode(errors="surrogatepass"))
            found.update(np.ascontiguousarray(values).data)
        return found.hexdigest()


def _stored(name: str) -> str:
    """A name as HDF5 takes it for one of a dataset, whatever is in it; an ordinary one is itself."""
    text = quote(name, safe=_KEPT, errors="surrogatepass")
    return text.replace(".", "%2E") if text.strip(".") == "" and text else text or _EMPTY


def _restored(stored: str) -> str:
    return "" if stored == _EMPTY else unquote(stored, errors="surrogatepass")


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint in one step; the previous one stays until the new one is on the disk.

    The file is put together in memory, because a disk that fills up while HDF5 writes leaves its library
    with a file it can neither finish nor close.
    """
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=_BLOCK) as file:
        file.attrs.update(
            format=FORMAT,
            case=checkpoint.case,
            iteration=checkpoint.iteration,
            precision=checkpoint.precision,
            mesh=checkpoint.mesh,
            config=checkpoint.config,
            sha256=checkpoint.digest(),
        )
        for name, values in checkpoint.state.items():
            file.create_dataset(f"state/{_stored(name)}", data=values)
        monitors = file.create_dataset("monitors", data=checkpoint.monitors)
        names = [_stored(name) for name in checkpoint.monitor_names]
        if len(names) <= _MOST_IN_ATTRIBUTE:
            monitors.attrs["names"] = names
        else:
            file.create_dataset(_NAMES, data=names, dtype=h5py.string_dtype())
    content = buffer.getbuffer()
    content[:_BLOCK] = _seal(content[_BLOCK:])
    write_atomically(path, content)


def _seal(body: bytes | memoryview) -> bytes:
    """The first block of a file whose other blocks are ``body``."""
    return (_SEAL + hashlib.sha256(body).hexdigest().encode() + b"\n").ljust(_BLOCK, b"\0")


def _check_seal(path: Path) -> None:
    """UserError unless the file is whole; files of before there were seals begin with HDF5's signature."""
    content = memoryview(path.read_bytes())
    if bytes(content[:_BLOCK]) == _seal(content[_BLOCK:]) or bytes(content[: len(_SIGNATURE)]) == _SIGNATURE:
        return
    if bytes(content[: len(_SEAL)]) == _SEAL:
        raise UserError(f"{path}: damaged or truncated checkpoint; use an earlier one")
    raise UserError(f"{path}: not a checkpoint, or damaged from its first byte on; take checkpoint.h5 of a run")


def load(path: Path) -> Checkpoint:
    """Read a checkpoint back; UserError in one line when it is missing, damaged or something else."""
    import h5py

    if not os.path.isfile(path):  # of a Path, it fails for names that are too long
        raise UserError(f"{path}: no such checkpoint file")
    try:
        _check_seal(path)
        with h5py.File(path, "r") as file:
            checkpoint = _read(path, file)
            written = str(file.attrs["sha256"])
    except UserError:
        raise
    except (OSError, RuntimeError) as error:
        truncated = "truncated" in str(error)
        raise UserError(f"{path}: {'truncated' if truncated else 'damaged'} checkpoint; use an earlier one") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: an HDF5 file, but not a Meshloom checkpoint; take checkpoint.h5 of a run") from error
    if checkpoint.digest() != written:
        raise UserError(f"{path}: damaged checkpoint: its content does not match its checksum; use an earlier one")
    return checkpoint


def _read(path: Path, file: Any) -> Checkpoint:
    """The checkpoint in an open HDF5 file; KeyError, TypeError or ValueError when something is missing."""
    version = int(file.attrs["format"])
    if version != FORMAT:
        raise UserError(f"{path}: checkpoint of format {version}, this Meshloom reads format {FORMAT}")
    iteration = int(file.attrs["iteration"])
    stored = file[_NAMES].asstr()[...] if _NAMES in file else file["monitors"].attrs["names"]
    names = tuple(_restored(str(name)) for name in stored)
    monitors = file["monitors"][...]
    if monitors.shape != (iteration, len(names)):
        raise ValueError("monitors do not fit the iteration")
    return Checkpoint(
        case=str(file.attrs["case"]),
        iteration=iteration,
        precision=str(file.attrs["precision"]),
        mesh=str(file.attrs["mesh"]),
        config=str(file.attrs["config"]),
        state={_restored(name): values[...] for name, values in file["state"].items()},
        monitor_names=names,
        monitors=monitors,
    )
