"""What every rank has as a whole, such as maps, points and who owns what, is held once on a node: in a file without a
name, which the ranks of the node map.

A rank runs loops on what is here of sets and maps (``local.py``). The whole is what a person gets, and what loops are
chosen by; it stays there for everybody, and no rank waits for another to look at it. Pages of the file come into memory
when somebody does, one copy for all, and may go again. A rank that finds other values there, or no file, keeps its own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, NamedTuple

import numpy as np

from meshloom.dist.local import Distribution
from meshloom.dist.usage import meshes_of
from meshloom.dist.world import World
from meshloom.mesh.core import Field, VaryingMap
from meshloom.mesh.mesh import Mesh
from meshloom.process.signals import undone_if_stopped

LEAST = 1 << 16  # bytes: smaller arrays stay where they are
LARGE = 1 << 20  # bytes that are worth a call of the system
_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
_ALIGNED = 64  # bytes: as what is allocated


class HeldArray(NamedTuple):
    """An array that somebody holds, and how another one is put in its place."""

    values: np.ndarray
    replace: Callable[[np.ndarray], None]


class FilePlace(NamedTuple):
    """Where an array lies in a file."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


def return_freed_memory() -> None:
    """From now on what is large goes back to the system when it is freed. By itself the allocator of glibc keeps it for
    the next one, up to 64 MiB; arrays of a set-up are whole, and those of a rank are not."""
    if (choose := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        choose(_M_MMAP_THRESHOLD, LARGE)


def share(world: World, cut: Distribution) -> None:
    """Large arrays of sets that are cut together, and of their meshes, lie in a file of each node from now on; all
    ranks must ask."""
    held = {name: one for name, one in _held(cut) if _is_large(one.values)}
    arrays = {name: one.values for name, one in held.items()} if world.node_rank == 0 else {}
    with opened_by_all(world) as file:
        places = world.of_first_on_node(written(arrays, file), "places of whole arrays")
        if places and (found := mapped(file)) is not None:
            take(held, places, found)


def take(held: Mapping[str, HeldArray], places: Mapping[str, FilePlace], file: mmap.mmap) -> None:
    """Arrays of a file in the place of those of the same names that have the same values."""
    for name in held.keys() & places.keys():
        values, (offset, shape, dtype) = held[name].values, places[name]
        there = np.ndarray(shape, dtype, file, offset)
        if values.shape == shape and values.dtype == there.dtype and _same_bytes(values, there):
            there.flags.writeable = values.flags.writeable
            held[name].replace(there)
    if hasattr(mmap, "MADV_DONTNEED"):
        file.madvise(mmap.MADV_DONTNEED)  # to compare them has brought all pages in


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    mine, theirs = (each.reshape(-1).view(np.uint8) for each in (one, other))
    return np.array_equal(mine, theirs)


# ----- who holds what -----------------------------------------------------------------------------------------------
def _held(cut: Distribution) -> Iterator[tuple[str, HeldArray]]:
    """Arrays by names that are the same on all ranks."""
    for k, one in enumerate(cut.owners):
        yield f"owner {k}", HeldArray(cut.owners[one], partial(cut.owners.__setitem__, one))
    for k, holder in enumerate(_holders(cut)):
        for name, found in list(vars(holder).items()):
            if isinstance(found, np.ndarray):
                yield f"{k} {name}", HeldArray(found, partial(vars(holder).__setitem__, name))
    for k, mesh in enumerate(meshes_of(cut.owners)):
        storage = mesh.coordinates.placement()["_storage"]
        if isinstance(storage, np.ndarray) and not (mesh.coordinates.stays or mesh.coordinates.lent):
            yield f"coordinates {k}", HeldArray(storage, partial(_put, mesh.coordinates))


def _put(field: Field, storage: np.ndarray) -> None:
    field.put_back({"_storage": storage})


def _holders(cut: Distribution) -> Iterator[object]:
    yield from cut.owners
    yield from cut.maps
    yield from cut.sets.values()
    for mesh in meshes_of(cut.owners):
        yield from _parts_of(mesh)


def _parts_of(mesh: Mesh) -> Iterator[object]:
    """What holds the arrays of a mesh."""
    for one in (mesh.cell_nodes, mesh.face_nodes, mesh.face_cells, mesh.boundary_nodes, mesh.boundary_cells):
        yield one
        if isinstance(one, VaryingMap):
            yield one.padded
    table, numbers = mesh.lists.cells, mesh.arrangement.numbers
    vars(table).pop("blocks", None)
    for lists in (table.nodes, mesh.lists.faces, mesh.lists.boundary_faces):
        vars(lists).pop("sizes", None)  # which look at the same arrays, and are made again where they are asked for
        yield lists
    if numbers is not None:
        yield numbers


def _is_large(one: np.ndarray) -> bool:
    """Is it worth it, and not in a file yet?"""
    return one.nbytes >= max(LEAST, 1) and one.flags.c_contiguous and not is_in_file(one)


def is_in_file(one: np.ndarray) -> bool:
    base = _root(one).base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def _begins(one: np.ndarray, other: np.ndarray) -> bool:
    """Is the memory of another array that of the first, or its beginning?"""
    first, of_other = (each.reshape(-1)[:1] for each in (one, other))
    return np.shares_memory(first, of_other) and one.nbytes >= other.nbytes


def _root(one: np.ndarray) -> np.ndarray:
    """The array whose memory one looks at."""
    while isinstance(one.base, np.ndarray):
        one = one.base
    return one


# ----- files --------------------------------------------------------------------------------------------------------
@contextmanager
def opened_by_all(world: World) -> Iterator[BinaryIO | None]:
    """A new file of this node, for its first rank to write and for all of them to map; None where a rank cannot open
    it. It has a name only until all have opened it, while it is empty: what ends a run later leaves nothing of it. All
    ranks of the node must ask, behind a call that all ranks have made."""
    own, path = _new_file() if world.node_rank == 0 else (None, "")
    try:
        with undone_if_stopped(partial(os.unlink, path)):
            path = world.of_first_on_node(path, "a new file")
            file = own if own is not None else _opened(path)
            world.wait_for_node("opened a file")
    finally:
        if own is not None:
            with suppress(OSError):  # somebody has removed it
                os.unlink(path)
    try:
        yield file
    finally:
        with suppress(OSError):  # of what there was no room for
            if file is not None:
                file.close()


def _new_file() -> tuple[BinaryIO | None, str]:
    """And its name; none where there is no place for it."""
    try:
        descriptor, path = tempfile.mkstemp(prefix="meshloom-")
    except OSError:
        return None, ""
    return open(descriptor, "w+b"), path


def _opened(path: str) -> BinaryIO | None:
    try:
        return open(path, "rb")
    except OSError:  # of another machine, or there is none
        return None


def written(arrays: Mapping[str, np.ndarray], file: BinaryIO | None) -> dict[str, FilePlace]:
    """Where these arrays lie in a file from now on; nowhere where they cannot be written. What looks at the same memory
    lies there once."""
    places: dict[str, FilePlace] = {}
    written: list[tuple[np.ndarray, int]] = []  # and where
    if file is None or not arrays:
        return {}
    try:
        for name, values in arrays.items():
            there = next((offset for one, offset in written if _begins(one, values)), -1)
            if there < 0:
                file.write(bytes(-file.tell() % _ALIGNED))
                there = file.tell()
                written.append((values, there))
                file.write(values.reshape(-1).view(np.uint8).data)
            places[name] = FilePlace(there, values.shape, values.dtype.str)
        file.flush()
    except OSError:  # there is no room
        return {}
    return places


def mapped(file: BinaryIO | None) -> mmap.mmap | None:
    """A file that has been written, to be written to by nobody: who writes has a copy of the page. None where it cannot
    be mapped."""
    try:
        return None if file is None else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError:
        return None
